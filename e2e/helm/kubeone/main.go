// Does what `kubeone apply` does with a manifest and with the Helm releases in it, with KubeOne's own code: reads the manifest, defaults and
// validates it, and calls the task "releasing core helm charts". It needs no machines: the kubeconfig is a file of this computer, and not that
// of the first control-plane node.
//
// Helm applies objects under the name of the program, so this one has to be called `kubeone`.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sirupsen/logrus"
	"k8c.io/kubeone/pkg/apis/kubeone"
	kubeonescheme "k8c.io/kubeone/pkg/apis/kubeone/scheme"
	"k8c.io/kubeone/pkg/apis/kubeone/v1beta2"
	"k8c.io/kubeone/pkg/apis/kubeone/validation"
	"k8c.io/kubeone/pkg/executor"
	"k8c.io/kubeone/pkg/kubeconfig"
	"k8c.io/kubeone/pkg/localhelm"
	"k8c.io/kubeone/pkg/state"
	"k8s.io/apimachinery/pkg/runtime"
)

func main() {
	if err := apply(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func apply(manifest string) error {
	cluster, err := load(manifest)
	if err != nil {
		return err
	}
	ctx := context.Background()
	st := &state.State{
		Cluster:  cluster,
		Context:  ctx,
		Executor: here{executor.NewLocal(ctx)},
		Logger:   logrus.New(),
	}
	if err := kubeconfig.BuildKubernetesClientset(st); err != nil {
		return err
	}
	return localhelm.Deploy(st)
}

// As pkg/apis/kubeone/config/config.go, whose package needs modules that this program doesn't: AllowedAPIs has only v1beta2.
func load(manifest string) (*kubeone.KubeOneCluster, error) {
	text, err := os.ReadFile(manifest)
	if err != nil {
		return nil, err
	}
	written := v1beta2.NewKubeOneCluster()
	if err := runtime.DecodeInto(kubeonescheme.Codecs.UniversalDecoder(), text, written); err != nil {
		return nil, err
	}
	kubeonescheme.Scheme.Default(written)
	cluster := new(kubeone.KubeOneCluster)
	if err := kubeonescheme.Scheme.Convert(written, cluster, nil); err != nil {
		return nil, err
	}
	return cluster, validation.ValidateKubeOneCluster(*cluster).ToAggregate()
}

// The file of a control-plane node with the kubeconfig, on this computer.
type here struct{ executor.Adapter }

func (h here) Open(host kubeone.HostConfig) (executor.Interface, error) {
	shell, err := h.Adapter.Open(host)
	return withKubeconfig{shell}, err
}

type withKubeconfig struct{ executor.Interface }

func (w withKubeconfig) POpen(command string, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	command = strings.TrimPrefix(command, "sudo ")
	command = strings.ReplaceAll(command, "/etc/kubernetes/admin.conf", os.Getenv("KUBECONFIG"))
	return w.Interface.POpen(command, stdin, stdout, stderr)
}
