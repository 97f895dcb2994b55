// The judge of crates/fit: kube-scheduler's own filters as a program, without an API server.
//
// It reads cases on stdin, one JSON object a line, and writes one line for each. A case has nodes, the pods on them (`bound`), the
// pods that are asked about (`pods`), namespaces, claims, volumes and storage classes. Every pod goes the way of a real one first:
// defaults and changes of kube-apiserver, its validation, and the admission plugin ExtendedResourceToleration if `admit` says so.
// The answer for a pod is the first plugin that refuses it, for each node, with kube-scheduler's own words.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	podregistry "k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/plugin/pkg/admission/extendedresourcetoleration"
)

type question struct {
	Nodes      []*v1.Node                  `json:"nodes"`
	Bound      []*v1.Pod                   `json:"bound"`
	Pods       []*v1.Pod                   `json:"pods"`
	Namespaces []*v1.Namespace             `json:"namespaces"`
	Claims     []*v1.PersistentVolumeClaim `json:"claims"`
	Volumes    []*v1.PersistentVolume      `json:"volumes"`
	Classes    []*storagev1.StorageClass   `json:"classes"`
	Admit      bool                        `json:"admit"`
}

type refusal struct {
	Plugin  string   `json:"plugin"`
	Reasons []string `json:"reasons"`
}

type answer struct {
	// What kube-apiserver has against the pod. Nothing else is said then.
	Invalid string `json:"invalid,omitempty"`
	// True if a plugin keeps the pod out of the queue.
	Gated bool `json:"gated,omitempty"`
	// By node; null for those that take the pod.
	Nodes map[string]*refusal `json:"nodes,omitempty"`
}

type reply struct {
	Pods  []answer `json:"pods"`
	Error string   `json:"error,omitempty"`
}

// Plugins of the default profile that ask for more than a snapshot, and have nothing to say about these pods.
var leftOut = map[string]bool{names.DynamicResources: true, names.DefaultPreemption: true}

type judge struct {
	profile   config.KubeSchedulerProfile
	admission admission.MutationInterface
	client    *fake.Clientset
}

func newJudge() (*judge, error) {
	metrics.Register()
	defaults, err := latest.Default()
	if err != nil {
		return nil, err
	}
	profile := defaults.Profiles[0]
	var kept []config.Plugin
	for _, plugin := range profile.Plugins.MultiPoint.Enabled {
		if !leftOut[plugin.Name] {
			kept = append(kept, plugin)
		}
	}
	profile.Plugins.MultiPoint.Enabled = kept
	known := admission.NewPlugins()
	extendedresourcetoleration.Register(known)
	plugin, err := known.InitPlugin(extendedresourcetoleration.PluginName, nil, admission.PluginInitializers{})
	if err != nil {
		return nil, err
	}
	return &judge{profile, plugin.(admission.MutationInterface), fake.NewClientset()}, nil
}

// admitted makes of a pod what kube-apiserver would store.
func (j *judge) admitted(ctx context.Context, pod *v1.Pod, tolerate bool) (*v1.Pod, error) {
	pod = pod.DeepCopy()
	legacyscheme.Scheme.Default(pod)
	inner := &core.Pod{}
	if err := legacyscheme.Scheme.Convert(pod, inner, nil); err != nil {
		return nil, err
	}
	if tolerate {
		kind, resource := core.Kind("Pod").WithVersion("v1"), core.Resource("pods").WithVersion("v1")
		attributes := admission.NewAttributesRecord(
			inner, nil, kind, inner.Namespace, inner.Name, resource, "", admission.Create, nil, false, nil)
		if err := j.admission.Admit(ctx, attributes, nil); err != nil {
			return nil, err
		}
	}
	podregistry.Strategy.PrepareForCreate(ctx, inner)
	if errors := podregistry.Strategy.Validate(ctx, inner); len(errors) > 0 {
		return nil, errors.ToAggregate()
	}
	stored := &v1.Pod{}
	return stored, legacyscheme.Scheme.Convert(inner, stored, nil)
}

func fill[T runtime.Object](informer cache.SharedIndexInformer, objects []T) error {
	for _, object := range objects {
		if err := informer.GetIndexer().Add(object); err != nil {
			return err
		}
	}
	return nil
}

func (j *judge) answer(ctx context.Context, asked *question) ([]answer, error) {
	var bound []*v1.Pod
	for _, pod := range asked.Bound {
		stored, err := j.admitted(ctx, pod, asked.Admit)
		if err != nil {
			return nil, fmt.Errorf("bound pod %s: %w", pod.Name, err)
		}
		// kube-apiserver sets these itself.
		stored.DeletionTimestamp = pod.DeletionTimestamp
		bound = append(bound, stored)
	}
	snapshot := schedulercache.NewSnapshot(bound, asked.Nodes)
	factory := informers.NewSharedInformerFactory(j.client, 0)
	scheduler, err := frameworkruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), &j.profile,
		frameworkruntime.WithClientSet(j.client),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithParallelism(1),
	)
	if err != nil {
		return nil, err
	}
	// The informers never start: what they know is put into them.
	listed := factory.Core().V1()
	for _, failed := range []error{
		fill(listed.Namespaces().Informer(), asked.Namespaces),
		fill(listed.PersistentVolumeClaims().Informer(), asked.Claims),
		fill(listed.PersistentVolumes().Informer(), asked.Volumes),
		fill(factory.Storage().V1().StorageClasses().Informer(), asked.Classes),
	} {
		if failed != nil {
			return nil, failed
		}
	}
	answers := make([]answer, 0, len(asked.Pods))
	for _, pod := range asked.Pods {
		stored, err := j.admitted(ctx, pod, asked.Admit)
		if err != nil {
			answers = append(answers, answer{Invalid: err.Error()})
			continue
		}
		one, err := judged(ctx, scheduler, snapshot, stored)
		if err != nil {
			return nil, fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		answers = append(answers, *one)
	}
	return answers, nil
}

// judged goes through kube-scheduler's steps up to its filters, as findNodesThatFitPod in schedule_one.go does.
func judged(
	ctx context.Context, scheduler framework.Framework, snapshot *schedulercache.Snapshot, pod *v1.Pod,
) (*answer, error) {
	out := &answer{Nodes: map[string]*refusal{}}
	for _, plugin := range scheduler.PreEnqueuePlugins() {
		out.Gated = out.Gated || !plugin.PreEnqueue(ctx, pod).IsSuccess()
	}
	nodes, err := snapshot.NodeInfos().List()
	if err != nil {
		return nil, err
	}
	state := framework.NewCycleState()
	narrowed, status, by := scheduler.RunPreFilterPlugins(ctx, state, pod)
	if !status.IsSuccess() && !status.IsRejected() {
		return nil, status.AsError()
	}
	for _, node := range nodes {
		name := node.Node().Name
		switch {
		case !status.IsSuccess():
			plugin := status.Plugin()
			if plugin == "" {
				plugin, _ = by.PopAny()
				by.Insert(plugin)
			}
			out.Nodes[name] = &refusal{plugin, status.Reasons()}
		case !narrowed.AllNodes() && !narrowed.NodeNames.Has(name):
			out.Nodes[name] = &refusal{names.NodeAffinity, []string{"node(s) didn't satisfy plugin(s)"}}
		default:
			found := scheduler.RunFilterPlugins(ctx, state, pod, node)
			switch {
			case found.IsSuccess():
				out.Nodes[name] = nil
			case found.IsRejected():
				out.Nodes[name] = &refusal{found.Plugin(), found.Reasons()}
			default:
				return nil, found.AsError()
			}
		}
	}
	return out, nil
}

func run() error {
	klog.SetLogger(klog.Logger{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	j, err := newJudge()
	if err != nil {
		return err
	}
	in, out := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			asked, said := &question{}, reply{}
			if err := json.Unmarshal(line, asked); err != nil {
				said.Error = err.Error()
			} else if said.Pods, err = j.answer(ctx, asked); err != nil {
				said.Error = err.Error()
			}
			if err := out.Encode(said); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
