"""The gRPC stubs of Pulumi's protocol, imported without the rest of Pulumi's SDK."""

from ml_foundations.rehearsal.startup import without_init

with without_init("pulumi", "pulumi.runtime", "pulumi.runtime.proto"):
    from pulumi.runtime.proto import engine_pb2 as engine_pb2
    from pulumi.runtime.proto import engine_pb2_grpc as engine_pb2_grpc
    from pulumi.runtime.proto import language_pb2 as language_pb2
    from pulumi.runtime.proto import language_pb2_grpc as language_pb2_grpc
    from pulumi.runtime.proto import plugin_pb2 as plugin_pb2
    from pulumi.runtime.proto import provider_pb2 as provider_pb2
    from pulumi.runtime.proto import provider_pb2_grpc as provider_pb2_grpc
    from pulumi.runtime.proto import status_pb2 as status_pb2
