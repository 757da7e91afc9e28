"""The program on a cluster that is there already: no cluster, no node pools, everything above them."""

from tests.support.recording import changed_stack, stack_file


def test_the_program_makes_what_is_above_the_cluster() -> None:
    cluster = {
        "ml-foundations:cluster": {
            "name": "lab",
            "kubeconfig": "/clusters/lab",
            "context": "lab-admin",
        }
    }
    found = changed_stack("lab", stack_file("dev") | cluster)
    assert not [item for item in found if item["type"].startswith("gcp:")]
    provider = next(item for item in found if item["type"] == "pulumi:providers:kubernetes")
    assert provider["inputs"]["kubeconfig"] == "/clusters/lab"
    assert provider["inputs"]["context"] == "lab-admin"
    assert provider["inputs"]["clusterIdentifier"] == "lab"
    ours = {item["name"] for item in found}
    assert {"gpu-operator-release", "research-finetune-job", "serving-chat-deployment"} <= ours
