module ml-foundations/oldest-kubernetes

go 1.26.0

require k8s.io/kubernetes v1.30.14
