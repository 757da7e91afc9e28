"""The package as a Pulumi plugin: every component, for programs in any of Pulumi's languages."""

import re
import sys
from typing import Any, cast

import ml_foundations
import pulumi
from ml_foundations.component.base import PACKAGE
from ml_foundations.component.errors import ArgumentsError
from ml_foundations.component.outputs import done
from ml_foundations.kubernetes.trees import mapped
from pulumi.provider import ConstructResult, main
from pulumi.provider.experimental.component import ComponentProvider
from pulumi.provider.server import ComponentInitError
from pydantic.alias_generators import to_camel


class Host(ComponentProvider):
    """Gives the components what one of them published as the plain value that another takes.

    The SDK hands every value of another resource over as an Output, known or not.
    """

    def __init__(self) -> None:
        components = [getattr(ml_foundations, name) for name in ml_foundations.COMPONENTS]
        super().__init__(components, PACKAGE, version=ml_foundations.__version__)
        # What another component publishes is an Output there; and SDKs add a suffix to types themselves.
        self.schema = re.sub(r'(:index:\w+)Args"', r'\1"', str(self.schema)).replace(', "plain": true', "")

    def construct(
        self, name: str, resource_type: str, inputs: Any, options: pulumi.ResourceOptions | None = None
    ) -> ConstructResult:
        """Construct the component after the resources that its known values come from."""
        publishers: list[pulumi.Resource] = []
        values = mapped(inputs, lambda value: _plain(value, publishers))
        after = pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(depends_on=publishers))
        try:
            return super().construct(name, resource_type, values, after)
        except ComponentInitError as error:
            if isinstance(error.inner, ArgumentsError):
                told = ArgumentsError(*error.inner.given, to_camel)
                # The engine shows the errors below the message.
                raise pulumi.InputPropertiesError(told.message.partition("\n")[0], told.errors) from None
            raise


def _plain(value: Any, publishers: list[pulumi.Resource]) -> Any:
    """An input, or the value of a known Output; notes the resources that this comes from."""
    if not isinstance(value, pulumi.Output):
        return value
    output = cast("pulumi.Output[Any]", value)
    if not done(output.is_known()) or done(output.is_secret()):
        return output
    publishers += done(output.resources())
    return done(output.future())


if __name__ == "__main__":
    main(Host(), sys.argv[1:])
