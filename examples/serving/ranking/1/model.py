"""A model for Triton's Python backend: it ranks by score, the best first."""

import numpy
import triton_python_backend_utils as triton


class TritonPythonModel:
    """What Triton loads."""

    def execute(self, requests: list) -> list:
        """Answer each request with the order of its scores."""
        scores = [triton.get_input_tensor_by_name(request, "SCORES").as_numpy() for request in requests]
        return [triton.InferenceResponse([triton.Tensor("ORDER", numpy.argsort(-each, axis=-1))]) for each in scores]
