//! A stack with its resources, its connections and its live state. The only place that knows how the crates below fit together.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::cli::access::{self, MessageDetail};
use crate::cli::prices::{self, FoundPrices, PriceSource};
use crate::cli::readiness::read_readiness;
use crate::cli::sandbox_folder;
use crate::cli::settings::{Access, ENDPOINT_VARIABLE, Failure, Settings};
use live::connection::{Connection, InProcess, Options as Connect};
use live::deletion_scope::read_scope;
use live::gke::GkeAccess;
use live::kube::{InsecureAccess, KubeconfigAccess, KubeconfigReferences};
use live::{ApiError, read::read};
use model::address::{Address, FieldPath};
use model::diag::{Code, Diagnostic, Severity};
use model::prices::Prices;
use model::record::Record;
use model::resource::{Owner, Resource, Target, World};
use model::secrets::Secrets;
use model::secrets::env_values::{ENV_PREFIX, EnvValues};
use model::source::Sources;
use plan::review::readiness;
use plan::scale::ScaleRequest;
use plan::{Approval, Bill, Budget, DriftReport, Inputs, Mode, Plan, Selection, StopRequest};
use sandbox::{Sandbox, SandboxError};
use stack::charts::Render;
use stack::disk::{Fence, Trust};
use stack::lower::{self, Lowered};
use stack::{Loaded, Stack};

/// A valid stack, with the resources that it is lowered to.
pub struct Session {
    stack: Stack,
    sources: Sources,
    warnings: Vec<Diagnostic>,
    lowered: Lowered,
    message_detail: MessageDetail,
    env_values: EnvValues,
    /// The value of `--prices`.
    price_source: Option<PriceSource>,
    /// The prices that it names, once they are read.
    prices: OnceLock<FoundPrices>,
}

/// The request for a plan.
pub struct PlanRequest<'a> {
    pub mode: Mode,
    /// Approvals given, as they were typed.
    pub approved: &'a [Approval],
    /// Addresses to replace although no change requires it, as they were typed.
    pub replace: &'a [String],
    /// True if pools with several capacity options start with the first option again.
    pub retry_capacity: bool,
    /// The selected part of the stack.
    pub selection: Selection,
    /// The number of concurrent requests.
    pub parallelism: usize,
    /// True if the plan may have another target than the last one.
    pub retarget: bool,
    /// Maximum seconds to wait for an idle scheduler before its Dask workers are removed.
    pub when_idle: Option<u32>,
    /// The request to stop or to start.
    pub stop_request: StopRequest,
    /// Limits of cost beside those of the stack file.
    pub budget: Budget,
}

/// The cost of a stack as it is read, with its record.
pub struct LiveCost {
    /// `None` where Google bills nothing of the stack.
    pub bill: Option<Bill>,
    /// The reasons, as warnings, why no plan is possible: the bill has only the cost of what is live then.
    pub unplanned: Option<Vec<Diagnostic>>,
    pub record: Option<Record>,
}

impl PlanRequest<'_> {
    /// Requests a plan of the whole stack, without further options.
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            approved: &[],
            replace: &[],
            retry_capacity: false,
            selection: Selection::default(),
            parallelism: 1,
            retarget: false,
            when_idle: None,
            stop_request: StopRequest::Leave,
            budget: Budget::default(),
        }
    }
}

impl Session {
    /// Loads the stack.
    ///
    /// # Errors
    /// The errors in the file.
    pub fn load(settings: &Settings) -> Result<Self, Failure> {
        Self::load_with(settings, &[])
    }

    /// Loads the stack with some values replaced.
    ///
    /// # Errors
    /// The errors in the file and in those values.
    pub fn load_with(settings: &Settings, instead: &[(FieldPath, Value)]) -> Result<Self, Failure> {
        let prices = match &settings.prices {
            Some(PriceSource::File(path)) => {
                OnceLock::from(FoundPrices { prices: prices::load(path)?, warnings: Vec::new() })
            }
            Some(PriceSource::CloudBilling(_)) | None => OnceLock::new(),
        };
        let price_source = settings.prices.clone();
        let env = |name: &str| settings.environment(name);
        let helm = |asked: &Render| crate::cli::helm::render(&settings.helm, asked);
        let options = stack::Options { env: &env, vars: &settings.vars, helm: Some(&helm) };
        let loaded = stack::load_with(&settings.stack, &options, instead, settings.trust);
        let sources = loaded.as_ref().map_or_else(|failed| &failed.sources, |loaded| &loaded.sources);
        settings.masks().add(sources.secrets());
        let mut loaded = loaded?;
        let mut lowered = loaded.lowered(settings.access.is_simulated());
        let Loaded { stack, sources, mut warnings, .. } = loaded;
        let given = read_env_secrets(&lowered.resources, settings);
        if stack.kubernetes.is_some() {
            pin_kubeconfig(&mut lowered.target, &sources);
            warnings.extend(insecure_access(&lowered.target, &sources));
        }
        let problems = lower::check(&lowered.resources, &sources);
        if problems.is_empty() {
            let message_detail =
                if settings.is_verbose() { MessageDetail::Full } else { MessageDetail::Brief };
            let env_values = given;
            Ok(Self { stack, sources, warnings, lowered, message_detail, env_values, price_source, prices })
        } else {
            Err(Failure::new(problems, sources))
        }
    }

    /// Returns the stack itself.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Returns the resources, owner and target that the stack file is lowered to.
    pub fn lowered(&self) -> &Lowered {
        &self.lowered
    }

    /// Refuses a stack that is not the approved one: another target, owner, capacity option or resource.
    ///
    /// # Errors
    /// The stack is not the approved one.
    pub fn check_agreed(&self, agreed: Option<blake3::Hash>) -> Result<(), Failure> {
        let same = |agreed: blake3::Hash| self.lowered.digest().is_ok_and(|now| now == agreed);
        if agreed.is_none_or(same) {
            return Ok(());
        }
        let what = "the stack file has changed since this apply was agreed to; what waits for capacity goes on waiting";
        Err(Diagnostic::error(Code::Stale, what).help("apply again").into())
    }

    /// Returns the warnings: settings that are allowed and likely not intended.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// Returns the owner of the stack's resources, and their target.
    pub fn owner_and_target(&self) -> (&Owner, &Target) {
        (&self.lowered.owner, &self.lowered.target)
    }

    /// Returns the values from the environment that the stack's Secrets ask for.
    pub fn env_values(&self) -> &EnvValues {
        &self.env_values
    }

    /// Returns the limits of the stack file.
    fn budget(&self) -> Budget {
        let given = self.stack.budget.unwrap_or_default();
        Budget { max_per_hour: given.max_per_hour, idle_per_day: given.idle_per_day }
    }

    /// Returns the prices that costs are counted with.
    pub fn prices(&self) -> &Prices {
        self.prices.get().map_or_else(|| Prices::list(), |found| &found.prices)
    }

    /// Returns the warnings about the prices, once they are read.
    pub fn price_warnings(&self) -> &[Diagnostic] {
        self.prices.get().map_or(&[], |found| &found.warnings)
    }

    /// Reads the prices of the Cloud Billing API, where `--prices` asks for them and Google bills the stack. Once is enough.
    ///
    /// # Errors
    /// They cannot be read, or a sandbox is asked for them.
    pub async fn read_prices(&self, link: &Link) -> Result<(), Failure> {
        let region = plan::cost::region(&self.lowered.target);
        let (None, Some(PriceSource::CloudBilling(asked)), Some(region)) =
            (self.prices.get(), &self.price_source, region)
        else {
            return Ok(());
        };
        let Some(api) = &link.billing else { return Err(no_prices_in_sandbox(&self.lowered.target).into()) };
        let explain = |error: &ApiError| {
            let diagnose =
                || access::diagnose(error, &self.lowered.target, &self.sources, self.message_detail);
            asked
                .account
                .as_ref()
                .and_then(|account| access::no_account(error, account))
                .unwrap_or_else(diagnose)
        };
        let found = asked.read(region, &**api, explain).await?;
        self.prices.get_or_init(|| found);
        Ok(())
    }

    /// Takes the prices that are kept on this machine, where [`read_prices`](Self::read_prices) would read them.
    ///
    /// # Errors
    /// There are none.
    pub fn take_kept_prices(&self) -> Result<(), Failure> {
        let region = plan::cost::region(&self.lowered.target);
        let (Some(PriceSource::CloudBilling(asked)), Some(region)) = (&self.price_source, region) else {
            return Ok(());
        };
        let found = asked.kept(region)?;
        self.prices.get_or_init(|| found);
        Ok(())
    }

    /// Returns the source locations of the stack's fields.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Makes the remaining checks that need no live state.
    ///
    /// # Errors
    /// No plan is possible: the dependencies contain a cycle.
    pub fn validate(&self) -> Result<(), Failure> {
        self.plan_offline(&PlanRequest::new(Mode::Apply)).map(|_| ())
    }

    /// Returns a plan against an empty live state.
    ///
    /// # Errors
    /// The stack cannot be planned; the diagnostics say why.
    pub fn plan_offline(&self, request: &PlanRequest<'_>) -> Result<Plan, Failure> {
        self.plan_with(&World::empty(), request, Baseline::Nothing)
    }

    /// Returns a plan against the live state, with notes about the reads.
    ///
    /// # Errors
    /// The stack cannot be planned; the diagnostics say why.
    pub async fn plan(&self, link: &Link, request: &PlanRequest<'_>) -> Result<Plan, Failure> {
        self.read_prices(link).await?;
        let mut read = self.read(link, request.parallelism).await;
        plan::drop_unused_managed_fields(&mut read.world, request.mode, &self.lowered.external);
        let read_failure = |failure| self.read_failure(failure, read.error.as_ref());
        let mut plan = self.plan_with(&read.world, request, Baseline::Live).map_err(read_failure)?;
        if let Some(scope) = plan::deletion_scope(&plan) {
            // Two plans take twice the memory.
            drop(plan);
            read_scope(&*link.connection, (&mut read.world, &read.listed), &scope, request.parallelism).await;
            plan = self.plan_with(&read.world, request, Baseline::Live)?;
        }
        let waits = readiness::waits_of_kept(&plan, &read.world);
        let found = read_readiness(&*link.connection, &read.world, &waits, request.parallelism).await;
        readiness::add_notes(&mut plan, found);
        drop_in_background(read.world);
        Ok(plan)
    }

    /// Returns a plan, against the live state, that changes the number of one resource.
    ///
    /// # Errors
    /// The change cannot be planned; the diagnostics say why.
    pub async fn scale(
        &self,
        link: &Link,
        scale: &ScaleRequest<'_>,
        parallelism: usize,
    ) -> Result<Plan, Failure> {
        self.read_prices(link).await?;
        let selection = Selection { targets: vec![scale.address.to_string()], excludes: Vec::new() };
        let request = PlanRequest { selection, parallelism, ..PlanRequest::new(Mode::Apply) };
        let read = self.read(link, parallelism).await;
        let plan = self
            .with_inputs(&read.world, &request, Baseline::Live, |inputs| plan::scale::scale(inputs, scale));
        let plan = plan.map_err(|failure| self.read_failure(failure, read.error.as_ref()))?;
        Ok(plan)
    }

    /// Returns the cost of the stack, of what is live and of what the stack file plans, with the record of the stack. A stack that
    /// cannot be planned has the cost of what is live.
    ///
    /// # Errors
    /// The live state cannot be read.
    pub async fn bill(&self, link: &Link, parallelism: usize) -> Result<LiveCost, Failure> {
        let world = self.world(link, parallelism).await?;
        let request = PlanRequest::new(Mode::Apply);
        let (bill, unplanned) = match self.plan_with(&world, &request, Baseline::Live) {
            Ok(plan) => (plan.bill().cloned(), None),
            Err(failure) => {
                let live = |inputs: Inputs<'_>| Ok(plan::cost::live_bill(&inputs));
                let bill = self.with_inputs(&world, &request, Baseline::Live, live)?;
                let warning =
                    |found: &Diagnostic| Diagnostic { severity: Severity::Warning, ..found.clone() };
                (bill, Some(failure.diagnostics().iter().map(warning).collect()))
            }
        };
        Ok(LiveCost { bill, unplanned, record: world.record })
    }

    /// Returns the changes made outside this stack since the last apply.
    ///
    /// # Errors
    /// The live state cannot be read.
    pub async fn drift(&self, link: &Link, request: &PlanRequest<'_>) -> Result<DriftReport, Failure> {
        let read = self.read(link, request.parallelism).await;
        let found = self.with_inputs(&read.world, request, Baseline::Live, plan::drift);
        let found = found.map_err(|failure| self.read_failure(failure, read.error.as_ref()))?;
        Ok(found)
    }

    /// Finds the one section, or object of a section, whose address is the typed text or ends with it. Returns its resources in
    /// the order of creation, including external ones (`manage = false`).
    ///
    /// # Errors
    /// No address matches, or several sections match.
    pub fn find(&self, typed: &str) -> Result<Vec<&Resource>, Failure> {
        let all: Vec<&Resource> = self.resources().collect();
        let addresses: Vec<&Address> = all.iter().map(|resource| &resource.address).collect();
        match plan::propose::select::resolve_one(typed, &addresses) {
            Ok(places) => Ok(places.into_iter().map(|place| all[place]).collect()),
            Err(problem) => Err(Failure::new(vec![problem], self.sources.clone())),
        }
    }

    /// Reads the live state that matters to the stack.
    pub async fn read(&self, link: &Link, parallelism: usize) -> live::Reading {
        let Lowered { owner, target, resources, external, .. } = &self.lowered;
        let mut read =
            read(&*link.connection, &plan::read_set(resources, external, target, owner), parallelism).await;
        read.world.env_values = self.env_values.clone();
        read
    }

    /// Returns the live state as [`Self::read`] does, if all of it can be read.
    ///
    /// # Errors
    /// A read failed; the diagnostic names its cause and fix.
    pub async fn world(&self, link: &Link, parallelism: usize) -> Result<World, Failure> {
        let read = self.read(link, parallelism).await;
        match &read.error {
            Some(error) => Err(self.refused(error)),
            None => Ok(read.world),
        }
    }

    /// Returns the stack's resources in the order of creation, then the external ones (`manage = false`).
    pub fn resources(&self) -> impl Iterator<Item = &Resource> {
        let Lowered { resources, external, .. } = &self.lowered;
        resources.iter().chain(external.iter().map(|external| &external.resource))
    }

    /// Returns the failure of a refused request, with its cause and fix.
    pub fn refused(&self, error: &ApiError) -> Failure {
        let found = access::diagnose(error, &self.lowered.target, &self.sources, self.message_detail);
        Failure::new(vec![found], self.sources.clone())
    }

    /// Returns warnings for the hosts that were skipped because a command that only reads could not use them.
    pub fn skipped_hosts(&self, link: &Link) -> Vec<Diagnostic> {
        let found = |error: &ApiError| Diagnostic {
            severity: Severity::Warning,
            ..access::diagnose(error, &self.lowered.target, &self.sources, self.message_detail)
        };
        link.api().skipped_hosts().iter().map(found).collect()
    }

    /// Returns a failure with one problem that refers to the stack's files.
    pub fn failure(&self, problem: Diagnostic) -> Failure {
        Failure::new(vec![problem], self.sources.clone())
    }

    /// Names the cause of a failed read instead of the fact that it failed.
    fn read_failure(&self, failure: Failure, trouble: Option<&ApiError>) -> Failure {
        let Some(error) = trouble else { return failure };
        failure.with_diagnostic_for(
            Code::Unreadable,
            access::diagnose(error, &self.lowered.target, &self.sources, self.message_detail),
        )
    }

    /// Connects to the stack's target.
    ///
    /// # Errors
    /// The target does not exist or cannot be reached.
    pub fn connect(&self, settings: &Settings) -> Result<Link, Failure> {
        let Target { gke: _, endpoint: _, hosts: _, gone: _, context, kubeconfig, simulated: _ } =
            self.lowered.target.clone();
        let kubernetes = self
            .stack
            .kubernetes
            .as_ref()
            .map(|_| KubeconfigAccess { path: kubeconfig.map(PathBuf::from), context });
        kubernetes.iter().try_for_each(|kubeconfig| check_trusted(settings, kubeconfig))?;
        Link::open(settings, &self.lowered.target, kubernetes)
    }

    /// Returns the address of the ProvisioningRequest for a job's nodes. Its nodes are not reused, so a job that runs again needs
    /// a new request.
    fn node_request_of(&self, job: &Address) -> Option<Address> {
        let key = job.as_str().strip_prefix("job.")?;
        self.stack.request_of(key).map(|(key, request)| request.requested(key).address)
    }

    fn plan_with(
        &self,
        world: &World,
        request: &PlanRequest<'_>,
        baseline: Baseline,
    ) -> Result<Plan, Failure> {
        self.with_inputs(world, request, baseline, plan::plan)
    }

    fn with_inputs<T>(
        &self,
        world: &World,
        request: &PlanRequest<'_>,
        baseline: Baseline,
        make: impl FnOnce(Inputs<'_>) -> Result<T, Vec<Diagnostic>>,
    ) -> Result<T, Failure> {
        let PlanRequest {
            mode,
            approved: allowed,
            replace,
            retry_capacity,
            selection,
            parallelism: _,
            retarget,
            when_idle,
            stop_request,
            budget,
        } = request;
        let fail = |problems| Failure::new(problems, self.sources.clone());
        if !budget.is_none() && self.stack.gke.is_none() {
            let problem = Diagnostic::error(Code::SectionNeedsSection, "`--budget` needs `[gke]`");
            return Err(fail(vec![
                problem.help("leave it out: only what a stack creates on Google Cloud has a price"),
            ]));
        }
        let replace: Result<Vec<Vec<Address>>, Diagnostic> =
            replace.iter().map(|typed| addresses_of(&self.lowered.resources, typed)).collect();
        let mut replace = replace.map_err(|problem| fail(vec![problem]))?.concat();
        let requests: Vec<Address> =
            replace.iter().filter_map(|address| self.node_request_of(address)).collect();
        replace.extend(requests);
        let mut inputs = Inputs {
            offline: baseline == Baseline::Nothing,
            approved: allowed.to_vec(),
            replace,
            retry_capacity: *retry_capacity,
            selection: selection.clone(),
            allow_retarget: *retarget,
            idle_wait_seconds: *when_idle,
            prices: self.prices(),
            budget: self.budget().overridden_by(*budget),
            ..Inputs::of(self.lowered.clone(), *mode, world, &self.sources)
        };
        inputs.stop_state.request = stop_request.clone();
        make(inputs).map_err(fail)
    }
}

/// Makes the kubeconfig's path independent of the stack file's folder, and fills in the current context if none is named.
fn pin_kubeconfig(target: &mut Target, sources: &Sources) {
    let folder = sources.folder(&FieldPath::keys(["kubernetes", "kubeconfig"]));
    let file = target.kubeconfig.take().map(|file| folder.join(file));
    let absolute = file.map(|file| std::path::absolute(&file).unwrap_or(file));
    let KubeconfigAccess { path, context } =
        KubeconfigAccess { path: absolute, context: target.context.take() }.pinned();
    target.kubeconfig = path.map(|path| path.display().to_string());
    target.context = context;
}

/// Returns the warnings about the connection to the cluster of a kubeconfig.
fn insecure_access(target: &Target, sources: &Sources) -> Vec<Diagnostic> {
    let Target { context, kubeconfig, .. } = target;
    let access = KubeconfigAccess { path: kubeconfig.clone().map(PathBuf::from), context: context.clone() };
    let place = FieldPath::keys(["kubernetes"]);
    let warning = |found: InsecureAccess| {
        Diagnostic::warning(Code::Kubeconfig, found.to_string())
            .at(sources.span(&place), "for this")
            .help("others on the network can read and change what is sent")
    };
    access.insecure_access().into_iter().map(warning).collect()
}

/// Returns the values from the environment that the stack's Secrets need, and hides them in all further output.
pub fn read_env_secrets(resources: &[Resource], settings: &Settings) -> EnvValues {
    let bodies = resources.iter().map(|resource| &resource.body);
    let given = EnvValues::read(bodies, |name| settings.environment(name));
    let mut secrets = Secrets::default();
    given.iter().for_each(|(name, value)| secrets.add(value, &format!("{ENV_PREFIX}{name}")));
    settings.masks().add(&secrets);
    given
}

/// The state that a plan is made against.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Baseline {
    Nothing,
    Live,
}

/// Plans the resources of a saved plan again, with its original options, against the current live state.
///
/// # Errors
/// The plan cannot be made again; the diagnostics say why.
pub async fn plan_again(
    saved: &Plan,
    link: &Link,
    given: &EnvValues,
    parallelism: usize,
) -> Result<Plan, Failure> {
    let Plan { target, owner, mode, desired, external, .. } = saved;
    let wanted = plan::read_set(desired, external, target, owner);
    let mut read = read(&*link.connection, &wanted, parallelism).await;
    plan::drop_unused_managed_fields(&mut read.world, *mode, external);
    read.world.env_values = given.clone();
    let sources = Sources::default();
    let read_failure =
        read.error.as_ref().map(|error| access::diagnose(error, target, &sources, MessageDetail::Brief));
    let make = |world: &World| {
        plan::plan(plan::file::replan_inputs(saved, world, &sources)).map_err(|problems| {
            let failure = Failure::new(problems, Sources::default());
            match &read_failure {
                Some(found) => failure.with_diagnostic_for(Code::Unreadable, found.clone()),
                None => failure,
            }
        })
    };
    let mut now = make(&read.world)?;
    if let Some(scope) = plan::deletion_scope(&now) {
        drop(now);
        read_scope(&*link.connection, (&mut read.world, &read.listed), &scope, parallelism).await;
        now = make(&read.world)?;
    }
    Ok(plan::file::with_saved_locations(now, saved))
}

/// Frees the memory of a world in the background, which would otherwise take a twentieth of the time of a plan.
fn drop_in_background(world: World) {
    drop(tokio::task::spawn_blocking(|| drop(world)));
}

/// Returns the addresses that equal the typed text or end with it: one, or all of a section.
fn addresses_of(resources: &[Resource], typed: &str) -> Result<Vec<Address>, Diagnostic> {
    let addresses: Vec<&Address> = resources.iter().map(|resource| &resource.address).collect();
    let places = plan::propose::select::resolve_one(typed, &addresses)?;
    Ok(places.into_iter().map(|place| addresses[place].clone()).collect())
}

/// A connection to a stack's target. A sandbox in this process lives as long as this value.
pub struct Link {
    connection: Arc<Connection>,
    /// The Cloud Billing API; `None` for a sandbox, which has no prices.
    billing: Option<Arc<Connection>>,
    sandbox: Option<tokio::task::JoinHandle<Result<(), SandboxError>>>,
}

impl Link {
    /// Connects to the target of a saved plan.
    ///
    /// # Errors
    /// The plan was made for another target, or the target does not exist.
    pub fn for_plan(settings: &Settings, plan: &Plan) -> Result<Self, Failure> {
        let simulated = settings.access.is_simulated();
        if plan.target.simulated != simulated {
            let help = match simulated {
                true => "omit `--sandbox` and unset DASK_INFRA_SANDBOX to apply it to the cloud",
                false => "give the `--sandbox` it was made with",
            };
            let what = format!("the plan was made for {} ({})", plan.target, plan.target.label());
            return Err(Diagnostic::error(Code::PlanFile, what).help(help).into());
        }
        let Target { gke, endpoint: _, hosts, gone: _, context, kubeconfig, simulated: _ } =
            plan.target.clone();
        let path = kubeconfig.map(PathBuf::from);
        let by_kubeconfig = gke.is_none() && hosts.is_empty();
        let kubernetes = by_kubeconfig.then_some(KubeconfigAccess { path, context });
        kubernetes.iter().try_for_each(|kubeconfig| check_trusted(settings, kubeconfig))?;
        Self::open(settings, &plan.target, kubernetes)
    }

    /// Returns the connection that sends requests.
    pub fn api(&self) -> Arc<Connection> {
        Arc::clone(&self.connection)
    }

    /// Closes the link, and returns the error that stopped the sandbox of this process, if there is one.
    pub async fn close(self) -> Result<(), Failure> {
        let Self { connection, billing, sandbox } = self;
        let Some(task) = sandbox else { return Ok(()) };
        if !task.is_finished() {
            task.abort();
        }
        // The folder stays locked until the last user of the sandbox is gone, and this process may open it again.
        drop((connection, billing));
        match task.await {
            Ok(ended) => Ok(ended?),
            Err(error) if error.is_cancelled() => Ok(()),
            Err(error) => {
                Err(Diagnostic::error(Code::Sandbox, format!("the sandbox stopped: {error}")).into())
            }
        }
    }

    /// Connects to a target.
    ///
    /// # Errors
    /// The target does not exist or cannot be reached.
    pub fn open(
        settings: &Settings,
        target: &Target,
        kubernetes: Option<KubeconfigAccess>,
    ) -> Result<Self, Failure> {
        let mut link = ApiAccess { gke: GkeAccess::Google, in_process: None, task: None };
        match &settings.access {
            Access::Google => {}
            Access::Endpoint(url) => {
                let gke = loopback(url, ENDPOINT_VARIABLE)?;
                link.gke = gke.with_token(sandbox_folder::token_from_env().as_deref());
            }
            Access::Sandbox(_) if target.is_on_hosts() => return Err(needs_no_sandbox().into()),
            Access::Sandbox(_) if kubernetes.is_some() => return Err(no_sandbox().into()),
            Access::Sandbox(dir) => link = open_sandbox(dir)?,
        }
        let ApiAccess { gke, in_process, task } = link;
        let cluster = target.gke.clone();
        let options = Connect {
            gke,
            cluster,
            endpoint: target.endpoint,
            kubernetes,
            hosts: target.hosts.clone(),
            gone_hosts: target.gone.clone(),
            in_process_kubernetes: in_process,
        };
        let connection = Arc::new(Connection::new(options));
        let billing = match (&settings.billing_endpoint, &settings.access) {
            (Some(url), _) => Some(Arc::new(Connection::new(Connect::only_gke(loopback(
                url,
                prices::BILLING_ENDPOINT_VARIABLE,
            )?)))),
            (None, Access::Google) => Some(Arc::clone(&connection)),
            (None, Access::Endpoint(_) | Access::Sandbox(_)) => None,
        };
        Ok(Self { connection, billing, sandbox: task })
    }
}

/// Refuses a kubeconfig in the repository that runs a program, or that sends a file of this machine to a server. Authors
/// of the repository must not choose either.
fn check_trusted(settings: &Settings, kubeconfig: &KubeconfigAccess) -> Result<(), Diagnostic> {
    let stack = &settings.stack;
    let folder = if stack.is_dir() { stack } else { stack.parent().unwrap_or(Path::new("")) };
    let fence = Fence::around(folder, Trust::Repository);
    let inside = |path: &&PathBuf| fence.holds(path);
    let Some(path) = kubeconfig.path.as_ref().filter(|_| settings.trust == Trust::Repository).filter(inside)
    else {
        return Ok(());
    };
    let KubeconfigReferences { programs, files } = kubeconfig.references();
    let outside = files.iter().find(|file| file.exists() && !fence.holds(file));
    let what = match (programs.first(), outside) {
        (None, None) => return Ok(()),
        (Some(program), _) => format!("runs a program: `{program}`"),
        (None, Some(file)) => format!("names a file outside it: {}", file.display()),
    };
    let what = format!("{} is in the repository and {what}", path.display());
    Err(Diagnostic::error(Code::NotTrusted, what).help(
        "keep the kubeconfig outside the repository; or, if you trust its author, give `--trust-stack` \
         (DASK_INFRA_TRUST_STACK=1)",
    ))
}

/// Returns the access to an endpoint that a variable names.
fn loopback(url: &str, variable: &str) -> Result<GkeAccess, Diagnostic> {
    GkeAccess::loopback(url).map_err(|why| {
        let sandbox = match variable {
            ENDPOINT_VARIABLE => "; `dask-infra sandbox env` prints it for a served sandbox",
            _ => "",
        };
        let help = format!("{variable} sets it: unset it to use Google's{sandbox}");
        Diagnostic::error(Code::Usage, why).help(help)
    })
}

fn no_prices_in_sandbox(target: &Target) -> Diagnostic {
    let what = format!(
        "{target} is a sandbox, which has no prices: `--prices live` and `--prices billingAccounts/ID` ask Google"
    );
    Diagnostic::error(Code::PricesUnread, what).help(
        "leave `--prices` out to count with the built-in list, or give a file of prices: `--prices FILE`",
    )
}

fn no_sandbox() -> Diagnostic {
    Diagnostic::error(
        Code::Sandbox,
        "a stack of `[kubernetes]` names an existing cluster, which no sandbox can be",
    )
    .help("omit `--sandbox`, or point `kubeconfig` at a served sandbox: `dask-infra sandbox kubeconfig`")
}

fn needs_no_sandbox() -> Diagnostic {
    Diagnostic::error(
        Code::Sandbox,
        "a stack of `[local]` or `[ssh]` runs real processes, which no sandbox imitates",
    )
    .help("omit `--sandbox` and unset DASK_INFRA_SANDBOX: it needs no cloud account")
}

struct ApiAccess {
    gke: GkeAccess,
    in_process: Option<InProcess>,
    task: Option<tokio::task::JoinHandle<Result<(), SandboxError>>>,
}

/// Opens the sandbox of a folder in this process, or connects to the one that another process serves.
fn open_sandbox(dir: &Path) -> Result<ApiAccess, Failure> {
    let options = sandbox::Options { dir: Some(dir.to_owned()), ..sandbox::Options::default() };
    let sandbox = match Sandbox::open(options) {
        Ok(sandbox) => sandbox,
        Err(error @ SandboxError::InUse { .. }) => {
            let Some(url) = sandbox_folder::served_url(dir) else { return Err(error.into()) };
            let gke = loopback(&url, ENDPOINT_VARIABLE)?.with_token(sandbox_folder::token_in(dir).as_deref());
            return Ok(ApiAccess { gke, in_process: None, task: None });
        }
        Err(error) => return Err(error.into()),
    };
    let clusters = sandbox.clone();
    let in_process: InProcess = Arc::new(move |endpoint| {
        clusters.cluster_by_endpoint(endpoint).map(|id| clusters.kubernetes_router(&id))
    });
    let gke = GkeAccess::InProcess(sandbox.gke_router());
    let task = tokio::spawn(sandbox.run(std::future::pending()));
    Ok(ApiAccess { gke, in_process: Some(in_process), task: Some(task) })
}

/// Runs an asynchronous command to its end.
///
/// # Errors
/// The command fails, or no runtime can be started.
pub fn block_on<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Diagnostic::error(Code::Usage, format!("cannot start threads: {error}")))?;
    let ended = runtime.block_on(command);
    // Background tasks (a second Ctrl-C, a reader of stdin) must not keep the process alive.
    runtime.shutdown_background();
    ended
}
