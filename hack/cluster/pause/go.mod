module cascade-operator.io/hack/cluster/pause

go 1.24.0
