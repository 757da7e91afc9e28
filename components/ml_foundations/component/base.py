"""The base of every component: it checks arguments, declares children and publishes outputs."""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar, cast, get_args

import pulumi

from ml_foundations.component import protected, refused
from ml_foundations.component.errors import ArgumentsError, shown
from ml_foundations.component.objects import Expansion, expanded
from ml_foundations.component.outputs import published, unwrapped
from ml_foundations.component.spec import ComponentSpec, check
from ml_foundations.kubernetes import printable

PACKAGE = "ml-foundations"

S = TypeVar("S", bound=ComponentSpec)
Options: TypeAlias = pulumi.ResourceOptions | None
_Errors: TypeAlias = Iterable[tuple[str, str]]


class Child:
    """An attribute of a component that is one of its children."""

    def __init__(self, suffix: str) -> None:
        """Name the child by its suffix: the end of its name in Pulumi."""
        self.suffix = suffix

    def __get__(self, component: "Component[Any]", owner: type) -> pulumi.CustomResource:
        """Return the child."""
        return component.children[self.suffix]


class OptionalChild(Child):
    """An attribute of a component that is one of its children, or None."""

    def __get__(self, component: "Component[Any]", owner: type) -> pulumi.CustomResource | None:  # pyright: ignore
        """Return the child, or None if the component has none with this suffix."""
        return component.children.get(self.suffix)


class Component(pulumi.ComponentResource, Generic[S]):
    """A component whose arguments are the spec ``S``.

    Each public annotation of a subclass is an output: the attribute of that name of the spec,
    unless ``outputs`` returns another value.
    """

    is_refused = False
    """Whether an argument is invalid, here or in a component that it uses."""
    children: Mapping[str, pulumi.CustomResource]
    """All children, by suffix: the end of a child's name after the component's name and a dash."""

    def __init__(
        self,
        name: str,
        args: Mapping[str, Any] | None = None,
        opts: pulumi.ResourceOptions | None = None,
        **kwargs: Any,
    ) -> None:
        """Declare the component and its children, whose names begin with its name.

        The arguments are ``args`` or ``kwargs``. With a checked spec as ``args``, ``kwargs`` are
        objects only.

        Raises:
            TypeError: Both ``args`` and ``kwargs`` are given.
            ArgumentsError: An argument is invalid. Its children are not declared then. A running
                program goes on, and ends with the errors of all components.
        """
        kind = type(self).__name__
        errors = _call_errors(kind, name, opts)
        name = name if name and isinstance(cast("Any", name), str) else "unnamed"
        title = f"{kind} {name}"
        opts = opts if isinstance(opts, pulumi.ResourceOptions) else None
        given = _one_form(title, args, kwargs)
        try:
            spec, expansion, sources = self._checked(name, given, kwargs, opts, errors)
        except ArgumentsError as error:
            # Without errors, it uses an Output of a component that has some.
            if error.errors and not refused.note(error):
                raise
            self._go_on_without(kind, name, opts)
            return
        if any(getattr(used, "is_refused", False) for used in expansion.objects.values()):
            self._go_on_without(kind, name, opts)
            return
        for warning in spec.warnings():
            pulumi.log.warn(printable.line(f"{title}: {warning}"))
        depends_on = [*sources, *self.joined(expansion.objects)]
        provider = self.given_provider(spec, expansion.objects)
        # As the option ``provider``, it would replace a provider of another package.
        providers = [provider] if provider else None
        ours = pulumi.ResourceOptions(depends_on=depends_on, providers=providers)
        options = pulumi.ResourceOptions.merge(opts, ours)
        super().__init__(f"{PACKAGE}:index:{kind}", name, {}, options)
        self.children = made = dict[str, pulumi.CustomResource]()
        children = spec.declared_children()
        for child in children:
            made[child.suffix] = child.declare(name, self, made, depends_on)
        protected.note(title, type(spec).model_fields, children)
        results: dict[str, pulumi.Output[Any]] = {}
        for base in type(self).__mro__:
            for key in _annotated(base):
                if hasattr(spec, key):
                    results[key] = published(getattr(spec, key), made.values(), f"{title}: {key}")
        for key, value in self.outputs(spec, made).items():
            # An output of a child depends on that child alone, so that others cannot change it.
            is_of_child = isinstance(value, pulumi.Output)
            if not is_of_child:
                value = published(value, made.values(), f"{title}: {key}")
            results[key] = value
        for key, value in results.items():
            setattr(self, key, value)
        self.register_outputs(results)

    def _go_on_without(self, kind: str, name: str, opts: Options) -> None:
        """Become a component that is never registered, because its program fails at the end."""
        self.is_refused = True
        self.children = {}
        failing = pulumi.ResourceOptions(depends_on=[refused.failing_dependency()])
        opts = pulumi.ResourceOptions.merge(opts, failing)
        super().__init__(f"{PACKAGE}:index:{kind}", name, {}, opts)
        for base in type(self).__mro__:
            for key in _annotated(base):
                setattr(self, key, refused.MissingOutput())

    def outputs(self, spec: S, made: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs that are not attributes of the spec; ``made`` has the children."""
        return {}

    def joined(self, objects: Mapping[str, pulumi.ComponentResource]) -> Sequence[pulumi.Resource]:
        """Return more resources that the children wait for, given the objects."""
        return ()

    def given_provider(
        self, spec: S, objects: Mapping[str, pulumi.ComponentResource]
    ) -> pulumi.ProviderResource | None:
        """Return the Kubernetes provider that the objects give the children, or None."""
        for name in self._provider_objects(objects)[:1]:
            return cast("Component[Any]", objects[name]).kubernetes_provider()
        return None

    @classmethod
    def provider_errors(
        cls,
        opts: Options,
        args: Mapping[str, Any],
        objects: Mapping[str, pulumi.ComponentResource],
    ) -> Iterator[tuple[str, str]]:
        """Yield why the Kubernetes provider is not clear, given the arguments and the objects."""
        names = cls._provider_objects(objects)
        for name in names[1:]:
            reason = f"is set, and {name} gives the Kubernetes provider too. Leave out {names[0]}"
            yield names[0], reason
        if names and has_kubernetes_provider(opts):
            reason = "is set, and opts has a Kubernetes provider"
            yield names[0], f"{reason}. Leave out {names[0]} or the provider"

    def kubernetes_provider(self) -> pulumi.ProviderResource | None:
        """Return the Kubernetes provider of its children; None for Pulumi's default provider."""
        return self.get_provider("kubernetes:core/v1:Pod")

    @classmethod
    def spec_type(cls) -> type[S]:
        """Return the spec, from the class's declaration."""
        (base,) = cast("Any", cls).__orig_bases__
        return get_args(base)[0]

    @classmethod
    def completed(cls, name: str, args: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments, completed by the component's name and by Pulumi's configuration."""
        spec = cls.spec_type()
        defaults: dict[str, Any] = {spec.name_field: name} if spec.name_field else {}
        for argument, key in spec.config_defaults.items():
            namespace, _, setting = key.partition(":")
            defaults[argument] = pulumi.Config(namespace).get(setting)
        return {**args, **{key: value for key, value in defaults.items() if args.get(key) is None}}

    def _checked(
        self, name: str, args: Any, kwargs: Mapping[str, Any], opts: Options, errors: _Errors
    ) -> tuple[S, Expansion, list[pulumi.Resource]]:
        """Return the checked arguments, the objects among them, and their resources."""
        title = f"{type(self).__name__} {name}"
        spec_type = self.spec_type()
        is_checked = isinstance(args, ComponentSpec)
        expansion = expanded(spec_type, kwargs if is_checked else args)
        values, sources = unwrapped(expansion.args)
        if is_checked:
            update = dict(values)
            for argument in spec_type.objects.values():
                for field in args.model_fields_set.intersection(argument.defaults):
                    update.pop(field, None)
            spec = cast("S", args.model_copy(update=update))
            if errors := [*errors, *self.provider_errors(opts, dict(spec), expansion.objects)]:
                raise ArgumentsError(title, [], spec_type, more=errors)
        else:
            clashes = self.provider_errors(opts, values, expansion.objects)
            errors = [*errors, *expansion.errors, *clashes]
            spec = check(spec_type, title, self.completed(name, values), errors)
        return spec, expansion, [*sources, *expansion.resources()]

    @classmethod
    def _provider_objects(cls, given: Iterable[str]) -> list[str]:
        objects = cls.spec_type().objects
        return [name for name in given if name in objects and objects[name].gives_provider]


def _call_errors(kind: str, name: Any, opts: Any) -> _Errors:
    """Yield what Pulumi itself refuses with a traceback: a name or options of another type."""
    if not name or not isinstance(name, str):
        yield "name", f'must be a text, not {shown(name)}. Write {kind}("my-name", …)'
    if not isinstance(opts, pulumi.ResourceOptions | None):
        yield "opts", f"must be pulumi.ResourceOptions(…), not {shown(opts)}"


def _one_form(title: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return the arguments, which are a dictionary or keywords."""
    if not isinstance(cast("object", args), Mapping | ComponentSpec | None):
        raise TypeError(f"{title}: the second argument is the arguments. Pass the options as opts=")
    if args is not None and kwargs and not isinstance(args, ComponentSpec):
        raise TypeError(f"{title}: pass the arguments as a dictionary or as keywords, not both")
    return kwargs if args is None else args


def has_kubernetes_provider(opts: Options) -> bool:
    """Return whether options have a Kubernetes provider."""
    if opts is None:
        return False
    # Merging makes a mapping of every form in which providers may be given.
    merged = pulumi.ResourceOptions.merge(None, opts).providers or {}
    providers = cast("Mapping[str, pulumi.ProviderResource]", merged).values()
    given = [*providers, opts.provider]
    return any(provider is not None and provider.package == "kubernetes" for provider in given)


def _annotated(base: type) -> list[str]:
    if not issubclass(base, Component) or base is Component:
        return []
    annotations = inspect.get_annotations(cast("type", base))
    return [key for key in annotations if not key.startswith("_")]
