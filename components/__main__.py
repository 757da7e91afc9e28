"""The package as a Pulumi plugin: every component, for programs in any of Pulumi's languages."""

import sys
from typing import Any, cast

import ml_foundations
import pulumi
from ml_foundations.component.base import PACKAGE
from ml_foundations.component.outputs import done
from pulumi.provider import ConstructResult, main
from pulumi.provider.experimental.component import ComponentProvider


class Host(ComponentProvider):
    """Gives the components what one of them published as the plain value that another takes.

    The SDK hands every value of another resource over as an Output, known or not.
    """

    def __init__(self) -> None:
        components = [getattr(ml_foundations, name) for name in ml_foundations.COMPONENTS]
        super().__init__(components, PACKAGE, version=ml_foundations.__version__)

    def construct(
        self, name: str, resource_type: str, inputs: Any, options: pulumi.ResourceOptions | None = None
    ) -> ConstructResult:
        """Construct the component after the resources that its known values come from."""
        publishers: list[pulumi.Resource] = []
        values = _plain(inputs, publishers)
        after = pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(depends_on=publishers))
        return super().construct(name, resource_type, values, after)


def _plain(value: Any, publishers: list[pulumi.Resource]) -> Any:
    """A tree of inputs with known Outputs replaced by their values; notes the resources that these come from."""
    if isinstance(value, dict):
        return {key: _plain(item, publishers) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_plain(item, publishers) for item in cast("list[Any]", value)]
    if not isinstance(value, pulumi.Output):
        return value
    output = cast("pulumi.Output[Any]", value)
    if not done(output.is_known()) or done(output.is_secret()):
        return output
    publishers += done(output.resources())
    return done(output.future())


if __name__ == "__main__":
    main(Host(), sys.argv[1:])
