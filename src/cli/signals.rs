//! Ctrl-C, SIGTERM and SIGHUP as a count: the first lets running steps reach a safe point, the second stops now.

use std::sync::OnceLock;

use tokio::sync::watch;

use model::diag::{Code, Diagnostic};

/// Kinds of signals that ask for a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM, or SIGHUP: the terminal was closed.
    Terminate,
}

/// The first signal that any listener of this process has received. It is kept because there is no listener between two applies
/// of one command.
static FIRST: OnceLock<Signal> = OnceLock::new();

/// Returns the first signal that asked this process to stop, whichever listener received it.
pub fn first_signal() -> Option<Signal> {
    FIRST.get().copied()
}

/// Signals as they come in.
pub struct StopSignals {
    /// The number of signals so far.
    pub count: watch::Receiver<u8>,
    first: watch::Receiver<Option<Signal>>,
}

impl StopSignals {
    /// Listens from now on; until then a signal ends the process as usual.
    ///
    /// # Errors
    /// The operating system refuses to register the listener.
    pub fn listen() -> Result<Self, Diagnostic> {
        // Under `nohup` a closed terminal is to change nothing.
        let hangup = if ignores_hangup() { None } else { Some(hangups()?) };
        Self::listen_with(hangup)
    }

    /// Listens from now on, and ignores a closed terminal.
    ///
    /// # Errors
    /// The operating system refuses to register the listener.
    pub fn listen_without_terminal() -> Result<Self, Diagnostic> {
        let mut closed = hangups()?;
        // Handed over to nobody, the signal ends nothing.
        tokio::spawn(async move { while closed.recv().await.is_some() {} });
        Self::listen_with(None)
    }

    fn listen_with(mut hangup: Option<tokio::signal::unix::Signal>) -> Result<Self, Diagnostic> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut interrupt = signal(SignalKind::interrupt()).map_err(refused)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(refused)?;
        let (counter, count) = watch::channel(0_u8);
        let (namer, first) = watch::channel(None);
        tokio::spawn(async move {
            loop {
                let signal = tokio::select! {
                    _ = interrupt.recv() => Signal::Interrupt,
                    _ = terminate.recv() => Signal::Terminate,
                    () = closed(&mut hangup) => Signal::Terminate,
                };
                FIRST.get_or_init(|| signal);
                namer.send_modify(|first| {
                    first.get_or_insert(signal);
                });
                counter.send_modify(|count| *count = count.saturating_add(1));
            }
        });
        Ok(Self { count, first })
    }

    pub fn first(&self) -> Option<Signal> {
        *self.first.borrow()
    }

    /// Completes at the first signal.
    pub async fn received(&self) {
        // The listener lives as long as the runtime, so the channel is open.
        let _ = self.count.clone().wait_for(|count| *count > 0).await;
    }

    /// Completes at the first signal, as [`Self::received`] does, for callers that listen for nothing else.
    pub async fn wait(self) {
        self.received().await;
    }
}

fn refused(error: std::io::Error) -> Diagnostic {
    Diagnostic::error(Code::Usage, format!("cannot listen for signals: {error}"))
}

fn hangups() -> Result<tokio::signal::unix::Signal, Diagnostic> {
    use tokio::signal::unix::{SignalKind, signal};
    signal(SignalKind::hangup()).map_err(refused)
}

/// Completes when the terminal is closed.
async fn closed(hangup: &mut Option<tokio::signal::unix::Signal>) {
    let told = match hangup {
        Some(hangup) => hangup.recv().await,
        None => None,
    };
    if told.is_none() {
        std::future::pending::<()>().await;
    }
}

/// Returns true if this process was started to ignore SIGHUP, as `nohup` does; listening would undo that. Source: proc(5),
/// `SigIgn` is a mask in which bit 0 is signal 1.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
