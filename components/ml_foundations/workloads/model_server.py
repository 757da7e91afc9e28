"""A model server as an InferenceGateway routes to it."""

from pydantic import Field

from ml_foundations.catalog.inference_gateways import MOST_MODELS
from ml_foundations.component.spec import Spec
from ml_foundations.component.types import InputName, Name


class ModelServer(Spec):
    """The pods that serve a model, such as InferenceService.model_server."""

    name: Name
    """The name of its InferencePool, and how the names of its other objects begin."""
    namespace: InputName
    """The namespace of its pods."""
    selector: dict[str, str] = Field(min_length=1)
    """The labels of the pods that accept requests, and of no others."""
    port: int = Field(ge=1, le=65535)
    """The port that its pods listen on."""
    health_path: str | None = None
    """The path that answers when the model is loaded, or tcp. The load balancer asks it too."""
    metrics_path: str = Field("/metrics", pattern="^/")
    """The path of the metrics by which the endpoint picker chooses a pod. The default is
    /metrics."""
    is_divided: bool = False
    """Its pods have the roles prefill and decode, by the label llm-d.ai/role. The default is
    false."""
    needs_key: bool = False
    """It accepts only requests with an API key, as an InferenceService with api_key_env does. The
    default is false."""
    served_models: list[str] = Field([], max_length=MOST_MODELS)
    """The names of the models and LoRA adapters that it serves, as requests name them. By default,
    it gets all requests, so it must be the only server."""
