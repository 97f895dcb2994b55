// The judge of crates/fit: kube-scheduler's own filters as a program, without an API server.
//
// It reads cases on stdin, one JSON object a line, and writes one line for each. A case has nodes, the pods on them (`bound`), the
// pods that are asked about (`pods`), namespaces, claims, volumes, storage classes, RuntimeClasses and LimitRanges. Every pod goes
// the way of a real one first: defaults and changes of kube-apiserver, the admission plugins LimitRanger and RuntimeClass, and
// ExtendedResourceToleration if `admit` says so, and its validation. Claims get the default class by DefaultStorageClass.
// The answer for a pod is, for each node, the first plugin that refuses it with kube-scheduler's own words, and all plugins that
// refuse it when each runs alone.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
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
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
	"k8s.io/kubernetes/plugin/pkg/admission/runtimeclass"
	"k8s.io/kubernetes/plugin/pkg/admission/storage/storageclass/setdefault"
)

type question struct {
	Nodes      []*v1.Node                  `json:"nodes"`
	Bound      []*v1.Pod                   `json:"bound"`
	Pods       []*v1.Pod                   `json:"pods"`
	Namespaces []*v1.Namespace             `json:"namespaces"`
	Claims     []*v1.PersistentVolumeClaim `json:"claims"`
	Volumes    []*v1.PersistentVolume      `json:"volumes"`
	Classes    []*storagev1.StorageClass   `json:"classes"`
	Runtimes   []*nodev1.RuntimeClass      `json:"runtimes"`
	Ranges     []*v1.LimitRange            `json:"ranges"`
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
	// By node: the plugins that refuse when each runs alone.
	Alone map[string][]string `json:"alone,omitempty"`
}

type reply struct {
	Pods  []answer `json:"pods"`
	Error string   `json:"error,omitempty"`
}

// Plugins of the default profile that ask for more than a snapshot, and have nothing to say about these pods.
var leftOut = map[string]bool{names.DynamicResources: true, names.DefaultPreemption: true}

type judge struct {
	profile config.KubeSchedulerProfile
	known   *admission.Plugins
	client  *fake.Clientset
}

// cluster is what one case has.
type cluster struct {
	judge   *judge
	factory informers.SharedInformerFactory
	admit   []admission.MutationInterface
	// By name, as the framework made them.
	plugins map[string]fwk.Plugin
}

// Initialize gives admission plugins what they ask for.
func (c *cluster) Initialize(plugin admission.Interface) {
	if wants, ok := plugin.(initializer.WantsExternalKubeInformerFactory); ok {
		wants.SetExternalKubeInformerFactory(c.factory)
	}
	if wants, ok := plugin.(initializer.WantsExternalKubeClientSet); ok {
		wants.SetExternalKubeClientSet(c.judge.client)
	}
}

func (c *cluster) admission(name string) (admission.MutationInterface, error) {
	plugin, err := c.judge.known.InitPlugin(name, nil, c)
	if err != nil {
		return nil, err
	}
	return plugin.(admission.MutationInterface), nil
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
	limitranger.Register(known)
	runtimeclass.Register(known)
	setdefault.Register(known)
	return &judge{profile, known, fake.NewClientset()}, nil
}

// create runs admission plugins on an object that is created.
func create(ctx context.Context, plugins []admission.MutationInterface, object runtime.Object, kind, resource, namespace, name string) error {
	attributes := admission.NewAttributesRecord(object, nil, core.Kind(kind).WithVersion("v1"), namespace, name,
		core.Resource(resource).WithVersion("v1"), "", admission.Create, nil, false, nil)
	for _, plugin := range plugins {
		if err := plugin.Admit(ctx, attributes, nil); err != nil {
			return err
		}
	}
	return nil
}

// admitted makes of a pod what kube-apiserver would store.
func (c *cluster) admitted(ctx context.Context, pod *v1.Pod) (*v1.Pod, error) {
	pod = pod.DeepCopy()
	legacyscheme.Scheme.Default(pod)
	inner := &core.Pod{}
	if err := legacyscheme.Scheme.Convert(pod, inner, nil); err != nil {
		return nil, err
	}
	if err := create(ctx, c.admit, inner, "Pod", "pods", inner.Namespace, inner.Name); err != nil {
		return nil, err
	}
	podregistry.Strategy.PrepareForCreate(ctx, inner)
	if errors := podregistry.Strategy.Validate(ctx, inner); len(errors) > 0 {
		return nil, errors.ToAggregate()
	}
	stored := &v1.Pod{}
	return stored, legacyscheme.Scheme.Convert(inner, stored, nil)
}

// claimed makes of claims what kube-apiserver would store: with the default class.
func (c *cluster) claimed(ctx context.Context, claims []*v1.PersistentVolumeClaim) ([]*v1.PersistentVolumeClaim, error) {
	plugin, err := c.admission(setdefault.PluginName)
	if err != nil {
		return nil, err
	}
	var all []*v1.PersistentVolumeClaim
	for _, claim := range claims {
		inner, stored := &core.PersistentVolumeClaim{}, &v1.PersistentVolumeClaim{}
		if err := legacyscheme.Scheme.Convert(claim.DeepCopy(), inner, nil); err != nil {
			return nil, err
		}
		err := create(ctx, []admission.MutationInterface{plugin}, inner, "PersistentVolumeClaim", "persistentvolumeclaims", inner.Namespace, inner.Name)
		if err != nil {
			return nil, err
		}
		if err := legacyscheme.Scheme.Convert(inner, stored, nil); err != nil {
			return nil, err
		}
		all = append(all, stored)
	}
	return all, nil
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
	c := &cluster{judge: j, factory: informers.NewSharedInformerFactory(j.client, 0), plugins: map[string]fwk.Plugin{}}
	wanted := []string{limitranger.PluginName, runtimeclass.PluginName}
	if asked.Admit {
		wanted = append(wanted, extendedresourcetoleration.PluginName)
	}
	for _, name := range wanted {
		plugin, err := c.admission(name)
		if err != nil {
			return nil, err
		}
		c.admit = append(c.admit, plugin)
	}
	for _, limits := range asked.Ranges {
		legacyscheme.Scheme.Default(limits)
	}
	// The informers never start: what they know is put into them.
	listed := c.factory.Core().V1()
	for _, failed := range []error{
		fill(listed.LimitRanges().Informer(), asked.Ranges),
		fill(c.factory.Node().V1().RuntimeClasses().Informer(), asked.Runtimes),
		fill(c.factory.Storage().V1().StorageClasses().Informer(), asked.Classes),
	} {
		if failed != nil {
			return nil, failed
		}
	}
	var bound []*v1.Pod
	for _, pod := range asked.Bound {
		stored, err := c.admitted(ctx, pod)
		if err != nil {
			return nil, fmt.Errorf("bound pod %s: %w", pod.Name, err)
		}
		// kube-apiserver and the kubelet set these themselves.
		stored.DeletionTimestamp = pod.DeletionTimestamp
		stored.Status = pod.Status
		bound = append(bound, stored)
	}
	snapshot := schedulercache.NewSnapshot(bound, asked.Nodes)
	registry := frameworkruntime.Registry{}
	for name, factory := range plugins.NewInTreeRegistry() {
		registry[name] = func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			plugin, err := factory(ctx, args, handle)
			c.plugins[name] = plugin
			return plugin, err
		}
	}
	scheduler, err := frameworkruntime.NewFramework(ctx, registry, &j.profile,
		frameworkruntime.WithClientSet(j.client),
		frameworkruntime.WithInformerFactory(c.factory),
		frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(c.factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithParallelism(1),
	)
	if err != nil {
		return nil, err
	}
	claims, err := c.claimed(ctx, asked.Claims)
	if err != nil {
		return nil, err
	}
	for _, failed := range []error{
		fill(listed.Namespaces().Informer(), asked.Namespaces),
		fill(listed.PersistentVolumeClaims().Informer(), claims),
		fill(listed.PersistentVolumes().Informer(), asked.Volumes),
	} {
		if failed != nil {
			return nil, failed
		}
	}
	answers := make([]answer, 0, len(asked.Pods))
	for _, pod := range asked.Pods {
		stored, err := c.admitted(ctx, pod)
		if err != nil {
			answers = append(answers, answer{Invalid: err.Error()})
			continue
		}
		one, err := judged(ctx, scheduler, snapshot, stored)
		if err != nil {
			return nil, fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		if one.Alone, err = c.alone(ctx, snapshot, stored); err != nil {
			return nil, fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		answers = append(answers, *one)
	}
	return answers, nil
}

// alone runs each plugin that filters without the others.
func (c *cluster) alone(ctx context.Context, snapshot *schedulercache.Snapshot, pod *v1.Pod) (map[string][]string, error) {
	nodes, err := snapshot.NodeInfos().List()
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for name, plugin := range c.plugins {
		refused, err := refusedBy(ctx, plugin, nodes, pod)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, node := range refused {
			all[node] = append(all[node], name)
		}
	}
	return all, nil
}

// refusedBy returns the nodes that one plugin refuses.
func refusedBy(ctx context.Context, plugin fwk.Plugin, nodes []fwk.NodeInfo, pod *v1.Pod) ([]string, error) {
	filter, ok := plugin.(fwk.FilterPlugin)
	if !ok {
		return nil, nil
	}
	state := framework.NewCycleState()
	var narrowed *fwk.PreFilterResult
	rejected := false
	if before, ok := plugin.(fwk.PreFilterPlugin); ok {
		result, status := before.PreFilter(ctx, state, pod, nodes)
		switch {
		case status.IsSkip():
			return nil, nil
		case status.IsRejected():
			rejected = true
		case !status.IsSuccess():
			return nil, status.AsError()
		}
		narrowed = result
	}
	var refused []string
	for _, node := range nodes {
		name := node.Node().Name
		out := rejected || !narrowed.AllNodes() && !narrowed.NodeNames.Has(name)
		if !out {
			status := filter.Filter(ctx, state, pod, node)
			if !status.IsSuccess() && !status.IsRejected() {
				return nil, status.AsError()
			}
			out = status.IsRejected()
		}
		if out {
			refused = append(refused, name)
		}
	}
	return refused, nil
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
			out.Nodes[name] = &refusal{names.NodeAffinity, []string{"node(s) didn't satisfy plugin(s) [NodeAffinity]"}}
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
