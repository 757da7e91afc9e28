"""Manifests of training that people really use, made with our components and compared with them field by field.

An expectation holds what the public manifest says. Where the component says more (requests beside limits, a security
context), that is no difference; where it says something else, the test names the field and why.
"""

from tests.workloads.building import gang, job
from tests.workloads.comparing import differences, plain

TOKEN = {"name": "hf-secret", "key": "hf_api_token"}
HF_TOKEN = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": TOKEN}}
L4 = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
SHARED_MEMORY = {"name": "dshm", "path": "/dev/shm", "volume": {"emptyDir": {"medium": "Memory"}}}
NO_AMOUNTS = {"cpu": None, "memory": None}


def test_gemma_on_one_node() -> None:
    """GoogleCloudPlatform/kubernetes-engine-samples, ai-ml/llm-finetuning-gemma/finetune.yaml."""
    env = {
        "MODEL_NAME": "google/gemma-2b",
        "NEW_MODEL": "gemma-2b-sql-finetuned",
        "LORA_R": "8",
        "LORA_ALPHA": "16",
        "TRAIN_BATCH_SIZE": "1",
        "EVAL_BATCH_SIZE": "2",
        "GRADIENT_ACCUMULATION_STEPS": "2",
        "DATASET_LIMIT": "1000",
        "MAX_SEQ_LENGTH": "512",
        "LOGGING_STEPS": "5",
    }
    made = job(
        job_name="finetune-job",
        namespace="default",
        image="$IMAGE_URL",
        container_name="finetuner",
        gpus=8,
        backoff_limit=2,
        restart_policy="OnFailure",
        grace_seconds=600,
        env=env,
        secret_env={"HF_TOKEN": TOKEN},
        node_selector=L4,
        mounts=[SHARED_MEMORY],
        annotations={"kubectl.kubernetes.io/default-container": "finetuner"},
        pod_overrides={
            "containers": [
                {"name": "finetuner", "resources": {"limits": NO_AMOUNTS, "requests": NO_AMOUNTS}}
            ]
        },
    )
    expected = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "finetune-job", "namespace": "default"},
        "spec": {
            "backoffLimit": 2,
            "template": {
                "metadata": {
                    "annotations": {"kubectl.kubernetes.io/default-container": "finetuner"}
                },
                "spec": {
                    "terminationGracePeriodSeconds": 600,
                    "containers": [
                        {
                            "name": "finetuner",
                            "image": "$IMAGE_URL",
                            "resources": {"limits": {"nvidia.com/gpu": "8"}},
                            "env": [*plain(**env), HF_TOKEN],
                            "volumeMounts": [{"mountPath": "/dev/shm", "name": "dshm"}],
                        }
                    ],
                    "volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory"}}],
                    "nodeSelector": L4,
                    "restartPolicy": "OnFailure",
                },
            },
        },
    }
    assert not list(differences(expected, made))
    container = made["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8"}, (
        "the source names no CPU and no memory"
    )


def test_gemma_on_two_nodes_in_a_queue() -> None:
    """GoogleCloudPlatform/kubernetes-engine-samples, ai-ml/mix-train-and-inference/workloads/fine-tune-l4.yaml.

    Its Service selects pods by the older label job-name, which names the same pods. It says suspend, which Kueue's
    webhook says for all Jobs in a queue: here by the override that leaves it to Kueue afterwards.
    """
    launch = (
        "accelerate launch --config_file fsdp_config.yaml --debug"
        " --main_process_ip finetune-gemma-l4-0.headless-svc-l4 --main_process_port 29500"
        " --machine_rank ${JOB_COMPLETION_INDEX} --num_processes 4 --num_machines 2 fine_tune.py"
    )
    env = {
        "EXPERIMENT": "finetune-experiment",
        "MODEL_NAME": "google/gemma-2-2b",
        "NEW_MODEL": "gemma-ft",
        "MODEL_PATH": "/model-data/model-gemma2/experiment",
        "DATASET_NAME": "b-mc2/sql-create-context",
        "DATASET_LIMIT": "5000",
        "EPOCHS": "1",
        "GRADIENT_ACCUMULATION_STEPS": "2",
        "CHECKPOINT_SAVE_STEPS": "10",
    }
    image = "us-docker.pkg.dev/google-samples/containers/gke/gemma-fine-tuning:v1.0.0"
    service, made = gang(
        job_name="finetune-gemma-l4",
        service_name="headless-svc-l4",
        nodes=2,
        queue="lq",
        image=image,
        container_name="gpu-job",
        image_pull_policy="Always",
        gpus=2,
        command=["bash", "-c", launch],
        env=env,
        secret_env={"HF_TOKEN": TOKEN},
        ports=[{"port": 29500}],
        backoff_limit=4,
        restart_policy="OnFailure",
        priority_class="low-priority-preempting",
        service_account="default",
        grace_seconds=60,
        node_selector=L4,
        labels={"app": "finetune-job"},
        annotations={"gke-gcsfuse/memory-limit": "35Gi"},
        mounts=[
            SHARED_MEMORY,
            {"name": "gcs-fuse-csi-ephemeral", "bucket": "models", "path": "/model-data"},
        ],
        pod_overrides={
            "volumes": [
                {
                    "name": "gcs-fuse-csi-ephemeral",
                    "csi": {"volumeAttributes": {"gcsfuseLoggingSeverity": "warning"}},
                }
            ]
        },
        overrides={"Job": {"spec": {"suspend": True}}},
    )
    expected = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "finetune-gemma-l4", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {
            "backoffLimit": 4,
            "completions": 2,
            "parallelism": 2,
            "completionMode": "Indexed",
            "suspend": True,
            "template": {
                "metadata": {
                    "labels": {"app": "finetune-job"},
                    "annotations": {
                        "gke-gcsfuse/volumes": "true",
                        "gke-gcsfuse/memory-limit": "35Gi",
                    },
                },
                "spec": {
                    "priorityClassName": "low-priority-preempting",
                    "containers": [
                        {
                            "name": "gpu-job",
                            "imagePullPolicy": "Always",
                            "image": image,
                            "ports": [{"containerPort": 29500}],
                            "resources": {
                                "requests": {"nvidia.com/gpu": "2"},
                                "limits": {"nvidia.com/gpu": "2"},
                            },
                            "command": ["bash", "-c", launch],
                            "env": [*plain(**env), HF_TOKEN],
                            "volumeMounts": [
                                {"mountPath": "/dev/shm", "name": "dshm"},
                                {"mountPath": "/model-data", "name": "gcs-fuse-csi-ephemeral"},
                            ],
                        }
                    ],
                    "nodeSelector": L4,
                    "restartPolicy": "OnFailure",
                    "serviceAccountName": "default",
                    "subdomain": "headless-svc-l4",
                    "terminationGracePeriodSeconds": 60,
                    "volumes": [
                        {"name": "dshm", "emptyDir": {"medium": "Memory"}},
                        {
                            "name": "gcs-fuse-csi-ephemeral",
                            "csi": {
                                "driver": "gcsfuse.csi.storage.gke.io",
                                "volumeAttributes": {
                                    "bucketName": "models",
                                    "mountOptions": "implicit-dirs",
                                    "gcsfuseLoggingSeverity": "warning",
                                },
                            },
                        },
                    ],
                },
            },
        },
    }
    assert not list(differences(expected, made))
    headless = {
        "metadata": {"name": "headless-svc-l4"},
        "spec": {
            "clusterIP": "None",
            "selector": {"batch.kubernetes.io/job-name": "finetune-gemma-l4"},
        },
    }
    assert not list(differences(headless, service))


def test_mnist_as_a_jobset() -> None:
    """kubernetes-sigs/jobset, site/static/examples/pytorch/cnn-mnist/mnist.yaml.

    Its API version, jobset.x-k8s.io/v1alpha2, is the one that the component writes.
    """
    run = (
        "torchrun --rdzv_id=123 --nnodes=4 --nproc_per_node=1 --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT"
        " --node_rank=$RANK mnist.py --epochs=1 --log-interval=1"
    )
    rank = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    (made,) = gang(
        job_name="pytorch",
        nodes=4,
        jobset=True,
        image="gcr.io/k8s-staging-jobset/pytorch-mnist:latest",
        container_name="pytorch",
        command=["bash", "-xc", run],
        ports=[{"port": 3389}],
        rendezvous_port=3389,
        field_env={"RANK": rank},
        env={
            "MASTER_ADDR": "$(PET_MASTER_ADDR)",
            "MASTER_PORT": "$(PET_MASTER_PORT)",
            "PYTHONUNBUFFERED": "0",
        },
    )
    expected = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "pytorch"},
        "spec": {
            "replicatedJobs": [
                {
                    "name": "workers",
                    "template": {
                        "spec": {
                            "parallelism": 4,
                            "completions": 4,
                            "backoffLimit": 0,
                            "template": {
                                "spec": {
                                    "containers": [
                                        {
                                            "name": "pytorch",
                                            "image": "gcr.io/k8s-staging-jobset/pytorch-mnist:latest",
                                            "ports": [{"containerPort": 3389}],
                                            "env": [
                                                {
                                                    "name": "RANK",
                                                    "valueFrom": {"fieldRef": {"fieldPath": rank}},
                                                },
                                                *plain(PYTHONUNBUFFERED="0"),
                                                # What the source writes out, from the component's own variables.
                                                *plain(
                                                    MASTER_ADDR="$(PET_MASTER_ADDR)",
                                                    MASTER_PORT="$(PET_MASTER_PORT)",
                                                ),
                                                *plain(
                                                    PET_MASTER_ADDR="pytorch-workers-0-0.pytorch"
                                                ),
                                                *plain(PET_MASTER_PORT="3389"),
                                            ],
                                            "command": ["bash", "-xc", run],
                                        }
                                    ]
                                }
                            },
                        }
                    },
                }
            ]
        },
    }
    assert not list(differences(expected, made))


def test_failures_by_index() -> None:
    """kubernetes/website, content/en/examples/controllers/job-backoff-limit-per-index-example.yaml."""
    script = (
        'import os, sys\nif int(os.environ.get("JOB_COMPLETION_INDEX")) % 2 == 0:\n  sys.exit(1)\n'
    )
    made = job(
        job_name="job-backoff-limit-per-index-example",
        image="python",
        container_name="example",
        command=["python3", "-c", script],
        completions=10,
        parallelism=3,
        indexed=True,
        backoff_limit_per_index=1,
        max_failed_indexes=5,
        ignore_disruptions=False,
    )
    expected = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job-backoff-limit-per-index-example"},
        "spec": {
            "completions": 10,
            "parallelism": 3,
            "completionMode": "Indexed",
            "backoffLimitPerIndex": 1,
            "maxFailedIndexes": 5,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {"name": "example", "image": "python", "command": ["python3", "-c", script]}
                    ],
                }
            },
        },
    }
    assert not list(differences(expected, made))
    assert made["spec"].keys() == expected["spec"].keys()
