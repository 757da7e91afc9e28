"""The package as a Pulumi plugin: every component, for programs in any of Pulumi's languages."""

import ast
import inspect
import sys
from functools import cache
from typing import Any, cast, is_typeddict

import ml_foundations
import pulumi
from ml_foundations.component.outputs import done
from pulumi.provider import ConstructResult, main
from pulumi.provider.experimental import component
from pulumi.provider.experimental.analyzer import Analyzer
from pulumi.provider.experimental.component import ComponentProvider

COMPONENTS = [getattr(ml_foundations, name) for name in ml_foundations.__all__ if not name.endswith("Args")]


class DescribingAnalyzer(Analyzer):
    """Describes the fields that arguments have from their bases, too: the SDK's own looks at the class itself only."""

    def get_docstring(self, typ: type, name: str) -> str | None:
        """The docstring under a field, in its class or in the base that it is from."""
        own = super().get_docstring(typ, name)
        return own or next(filter(None, (self.get_docstring(base, name) for base in _bases(typ))), None)


@cache
def _bases(typ: type) -> tuple[type, ...]:
    """The bases of a TypedDict, by its source: at run time it has forgotten them."""
    definition = ast.parse(inspect.getsource(typ)).body[0]
    names = [base.id for base in getattr(definition, "bases", []) if isinstance(base, ast.Name)]
    found = (getattr(sys.modules[typ.__module__], name, None) for name in names)
    return tuple(base for base in found if base is not None and is_typeddict(base))


# The provider makes its analyzer itself.
component.Analyzer = DescribingAnalyzer  # pyright: ignore[reportPrivateImportUsage]


class Host(ComponentProvider):
    """Gives the components what one of them published as the plain value that another takes.

    The SDK hands every value of another resource over as an Output, known or not.
    """

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
    main(Host(COMPONENTS, "ml-foundations", version=ml_foundations.__version__), sys.argv[1:])
