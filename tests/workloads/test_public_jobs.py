"""More manifests of Jobs that people really use, each with a feature of its own, compared field by field.

An expectation holds what the public manifest says, as in test_public_training.py.
"""

from tests.workloads.building import cron, gang, job
from tests.workloads.comparing import differences, plain

DISRUPTIONS = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}


def test_axolotl_with_settings_a_claim_and_a_bucket() -> None:
    """GoogleCloudPlatform/kubernetes-engine-samples,
    ai-ml/axolotl-multimodal-finetuning-gemma/k8s/axolotl-training-job.yaml.

    Its shell script is left out; it limits GPUs only.
    """
    token = {"name": "huggingface-credentials", "key": "token"}
    env = {"NCCL_DEBUG": "INFO", "GCS_BUCKET_NAME": "images"}
    made = job(
        job_name="gemma3-melanoma-training",
        namespace="axolotl-training",
        service_account="axolotl-training-sa",
        image="axolotlai/axolotl:main-latest",
        container_name="axolotl",
        command=["/bin/bash", "-c"],
        arguments=["true"],
        backoff_limit=0,
        gpus=1,
        cpu="8",
        memory="32Gi",
        requests={"ephemeral-storage": "10Gi"},
        limits={"cpu": None, "memory": None, "ephemeral-storage": None},
        node_selector={"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"},
        env=env,
        secret_env={"HUGGING_FACE_HUB_TOKEN": token},
        mounts=[
            {"name": "config-volume", "config_map": "axolotl-config", "path": "/workspace/configs"},
            {"claim": "model-storage", "path": "/outputs"},
            {"name": "gcs-fuse-csi", "bucket": "images", "path": "/mnt/gcs"},
        ],
    )
    expected = {
        "metadata": {"name": "gemma3-melanoma-training", "namespace": "axolotl-training"},
        "spec": {
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": {"gke-gcsfuse/volumes": "true"}},
                "spec": {
                    "serviceAccountName": "axolotl-training-sa",
                    "nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"},
                    "restartPolicy": "Never",
                    "containers": [
                        {
                            "name": "axolotl",
                            "image": "axolotlai/axolotl:main-latest",
                            "command": ["/bin/bash", "-c"],
                            "env": [
                                *plain(**env),
                                {
                                    "name": "HUGGING_FACE_HUB_TOKEN",
                                    "valueFrom": {"secretKeyRef": token},
                                },
                            ],
                            "resources": {
                                "limits": {"nvidia.com/gpu": "1"},
                                "requests": {
                                    "memory": "32Gi",
                                    "cpu": "8",
                                    "ephemeral-storage": "10Gi",
                                    "nvidia.com/gpu": "1",
                                },
                            },
                            "volumeMounts": [
                                {"name": "config-volume", "mountPath": "/workspace/configs"},
                                {"name": "model-storage", "mountPath": "/outputs"},
                                {"name": "gcs-fuse-csi", "mountPath": "/mnt/gcs"},
                            ],
                        }
                    ],
                    "volumes": [
                        {"name": "config-volume", "configMap": {"name": "axolotl-config"}},
                        {
                            "name": "model-storage",
                            "persistentVolumeClaim": {"claimName": "model-storage"},
                        },
                        {
                            "name": "gcs-fuse-csi",
                            "csi": {
                                "driver": "gcsfuse.csi.storage.gke.io",
                                "volumeAttributes": {
                                    "bucketName": "images",
                                    "mountOptions": "implicit-dirs",
                                },
                            },
                        },
                    ],
                },
            },
        },
    }
    assert not list(differences(expected, made))
    limits = made["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/gpu": "1"}


def test_a_job_in_a_queue_of_its_team() -> None:
    """GoogleCloudPlatform/kubernetes-engine-samples, batch/kueue-intro/job-team-a.yaml.

    It has its name generated, for kubectl create; under Pulumi a Job has a name. It says suspend: here by the override
    that leaves it to Kueue afterwards.
    """
    made = job(
        job_name="sample-job-team-a",
        namespace="team-a",
        queue="lq-team-a",
        ttl_seconds_after_finished=60,
        parallelism=3,
        completions=3,
        image="gcr.io/k8s-staging-perf-tests/sleep:latest",
        container_name="dummy-job",
        arguments=["10s"],
        cpu="500m",
        memory="512Mi",
        requests={"ephemeral-storage": "512Mi"},
        gpus=1,
        node_selector={"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"},
        overrides={"Job": {"spec": {"suspend": True}}},
    )
    amounts = {
        "cpu": "500m",
        "memory": "512Mi",
        "ephemeral-storage": "512Mi",
        "nvidia.com/gpu": "1",
    }
    expected = {
        "metadata": {"namespace": "team-a", "labels": {"kueue.x-k8s.io/queue-name": "lq-team-a"}},
        "spec": {
            "ttlSecondsAfterFinished": 60,
            "parallelism": 3,
            "completions": 3,
            "suspend": True,
            "template": {
                "spec": {
                    "nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"},
                    "containers": [
                        {
                            "name": "dummy-job",
                            "image": "gcr.io/k8s-staging-perf-tests/sleep:latest",
                            "args": ["10s"],
                            "resources": {"requests": amounts, "limits": amounts},
                        }
                    ],
                    "restartPolicy": "Never",
                }
            },
        },
    }
    assert not list(differences(expected, made))


def test_jax_over_several_nodes() -> None:
    """GoogleCloudPlatform/kubernetes-engine-samples, ai-ml/gke-a100-jax/kubernetes: job.yaml with job-patch.yaml, and
    service.yaml.

    The Service selects pods by the older label job-name, which names the same pods.
    """
    arguments = ["--num_processes", "2", "--job_name", "jax", "--sub_domain", "headless-svc"]
    service, made = gang(
        job_name="jax",
        service_name="headless-svc",
        nodes=2,
        gpus=1,
        backoff_limit=1,
        image="gcr.io/project/jax/hello:latest",
        container_name="jax-worker",
        command=["python", "train.py"],
        arguments=arguments,
        ports=[{"port": 1234}],
        pod_overrides={
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
        },
    )
    expected = {
        "metadata": {"name": "jax"},
        "spec": {
            "completions": 2,
            "parallelism": 2,
            "completionMode": "Indexed",
            "backoffLimit": 1,
            "template": {
                "spec": {
                    "subdomain": "headless-svc",
                    "restartPolicy": "Never",
                    "tolerations": [
                        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
                    ],
                    "containers": [
                        {
                            "name": "jax-worker",
                            "image": "gcr.io/project/jax/hello:latest",
                            "command": ["python", "train.py"],
                            "args": arguments,
                            "ports": [{"containerPort": 1234}],
                            "resources": {"limits": {"nvidia.com/gpu": "1"}},
                        }
                    ],
                }
            },
        },
    }
    assert not list(differences(expected, made))
    expected = {
        "metadata": {"name": "headless-svc"},
        "spec": {"clusterIP": "None", "selector": {"batch.kubernetes.io/job-name": "jax"}},
    }
    assert not list(differences(expected, service))


def test_a_job_set_of_one_job_on_a_node_pool_of_its_own() -> None:
    """kubernetes-sigs/jobset, site/static/examples/simple/exclusive-placement.yaml, with one of its three Jobs.

    A DistributedTraining is one gang: another replica of the Job would be another training.
    """
    alone = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}
    (made,) = gang(
        job_name="exclusive-placement",
        jobset=True,
        nodes=3,
        backoff_limit=10,
        image="busybox",
        container_name="sleep",
        command=["sleep"],
        arguments=["1000s"],
        overrides={"JobSet": {"metadata": {"annotations": alone}}},
    )
    expected = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "exclusive-placement", "annotations": alone},
        "spec": {
            "failurePolicy": {"maxRestarts": 3},
            "replicatedJobs": [
                {
                    "name": "workers",
                    "template": {
                        "spec": {
                            "parallelism": 3,
                            "completions": 3,
                            "backoffLimit": 10,
                            "template": {
                                "spec": {
                                    "containers": [
                                        {
                                            "name": "sleep",
                                            "image": "busybox",
                                            "command": ["sleep"],
                                            "args": ["1000s"],
                                        }
                                    ]
                                }
                            },
                        }
                    },
                }
            ],
        },
    }
    assert not list(differences(expected, made))


def test_a_sidecar_ships_the_logs() -> None:
    """kubernetes/website, content/en/examples/application/job/job-sidecar.yaml."""
    shipper = {
        "name": "logshipper",
        "image": "alpine:latest",
        "restartPolicy": "Always",
        "command": ["sh", "-c", "tail -F /opt/logs.txt"],
        "volumeMounts": [{"name": "data", "mountPath": "/opt"}],
    }
    made = job(
        job_name="myjob",
        image="alpine:latest",
        container_name="myjob",
        command=["sh", "-c", 'echo "logging" > /opt/logs.txt'],
        mounts=[{"name": "data", "path": "/opt", "volume": {"emptyDir": {}}}],
        init_containers=[shipper],
    )
    main = {
        "name": "myjob",
        "image": "alpine:latest",
        "command": ["sh", "-c", 'echo "logging" > /opt/logs.txt'],
    }
    expected = {
        "metadata": {"name": "myjob"},
        "spec": {
            "template": {
                "spec": {
                    "containers": [
                        main | {"volumeMounts": [{"name": "data", "mountPath": "/opt"}]}
                    ],
                    "initContainers": [shipper],
                    "restartPolicy": "Never",
                    "volumes": [{"name": "data", "emptyDir": {}}],
                }
            }
        },
    }
    assert not list(differences(expected, made))


def test_exit_codes_fail_the_job_and_disruptions_do_not() -> None:
    """kubernetes/website, content/en/examples/controllers/job-pod-failure-policy-example.yaml."""
    made = job(
        job_name="job-pod-failure-policy-example",
        completions=12,
        parallelism=3,
        backoff_limit=6,
        fail_on_exit_codes=[42],
        image="docker.io/library/bash:5",
        command=["bash"],
        arguments=["-c", 'echo "Hello world!" && sleep 5 && exit 42'],
    )
    fatal = {
        "action": "FailJob",
        "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]},
    }
    assert made["spec"]["podFailurePolicy"] == {"rules": [fatal, DISRUPTIONS]}
    expected = {"completions": 12, "parallelism": 3, "backoffLimit": 6}
    assert not list(differences(expected, made["spec"]))


def test_some_indexes_are_enough() -> None:
    """kubernetes/website, content/en/examples/controllers/job-success-policy.yaml."""
    made = job(
        job_name="job-success",
        indexed=True,
        completions=10,
        parallelism=10,
        success_rules=[{"succeededIndexes": "0,2-3", "succeededCount": 1}],
        image="python",
        command=["python3", "-c", "pass"],
    )
    expected = {
        "parallelism": 10,
        "completions": 10,
        "completionMode": "Indexed",
        "successPolicy": {"rules": [{"succeededIndexes": "0,2-3", "succeededCount": 1}]},
    }
    assert not list(differences(expected, made["spec"]))


def test_hello_every_minute() -> None:
    """kubernetes/website, content/en/examples/application/job/cronjob.yaml, as of its version batch/v1."""
    command = ["/bin/sh", "-c", "date; echo Hello from the Kubernetes cluster"]
    made = cron(
        cron_name="hello",
        schedule="* * * * *",
        restart_policy="OnFailure",
        image="busybox:1.28",
        image_pull_policy="IfNotPresent",
        container_name="hello",
        command=command,
    )
    container = {
        "name": "hello",
        "image": "busybox:1.28",
        "imagePullPolicy": "IfNotPresent",
        "command": command,
    }
    expected = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "hello"},
        "spec": {
            "schedule": "* * * * *",
            "jobTemplate": {
                "spec": {
                    "template": {"spec": {"containers": [container], "restartPolicy": "OnFailure"}}
                }
            },
        },
    }
    assert not list(differences(expected, made))
