// Command kube is a whole Kubernetes in one binary: the first argument names the component to run.
//
// One binary links the shared dependencies once, which saves most of the compile time, the link
// time and the disk space that a binary per component would cost.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	kubeapiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kubecontrollermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kubeproxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubescheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// command runs a cobra command with the flag and log set-up that all Kubernetes components share.
func command(build func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(build())) }
}

func runKubectl() {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}

func runCoreDNS() {
	// CoreDNS takes the order of its plugins from this list, not from the order of the imports.
	dnsserver.Directives = []string{
		"bind", "health", "ready", "errors", "cache", "kubernetes",
	}
	coremain.Run()
}

var components = map[string]func(){
	"kube-apiserver":          command(func() *cobra.Command { return kubeapiserver.NewAPIServerCommand() }),
	"kube-controller-manager": command(func() *cobra.Command { return kubecontrollermanager.NewControllerManagerCommand() }),
	"kube-scheduler":          command(func() *cobra.Command { return kubescheduler.NewSchedulerCommand() }),
	"kube-proxy":              command(func() *cobra.Command { return kubeproxy.NewProxyCommand() }),
	// The kubelet installs its own signal handler; a signal context here would install a second
	// one, which panics.
	"kubelet": command(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	"kubectl": runKubectl,
	"coredns": runCoreDNS,
	"etcd":    func() { etcdmain.Main(os.Args) },
}

func main() {
	if len(os.Args) > 1 {
		if run, ok := components[os.Args[1]]; ok {
			os.Args = append([]string{os.Args[1]}, os.Args[2:]...)
			run()
			return
		}
	}
	names := make([]string, 0, len(components))
	for name := range components {
		names = append(names, name)
	}
	sort.Strings(names)
	fmt.Fprintf(os.Stderr, "usage: kube COMPONENT [argument...]\ncomponents: %s\n", strings.Join(names, " "))
	os.Exit(2)
}
