import * as ml from "@pulumi/ml-foundations";

const team = new ml.TeamNamespace("research", { gpus: 8, cpu: "64", memory: "512Gi", storage: "4Ti" });

new ml.TrainingJob("finetune", {
    namespace: team.namespace,
    image: "pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime",
    command: ["python", "-c", "import torch; print(torch.cuda.get_device_name())"],
    gpu: "H100",
    gpus: 4,
    cpu: "32",
    memory: "256Gi",
}, { dependsOn: [team] });
