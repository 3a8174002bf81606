// Command kubernetes is one of the processes of a Kubernetes control plane, or their etcd.
//
// The first argument names the process, the others are the options of the process. It ends when its
// standard input closes.
package main

import (
	"fmt"
	"io"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	if len(os.Args) < 2 {
		os.Args = append(os.Args, "")
	}
	os.Args = os.Args[1:]
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	switch os.Args[0] {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllers.NewControllerManagerCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	default:
		fmt.Fprintln(os.Stderr, "expected etcd, kube-apiserver, kube-controller-manager or kube-scheduler")
		os.Exit(2)
	}
}
