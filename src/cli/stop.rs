//! Ctrl-C and SIGTERM as a count: the first lets running steps reach a safe point, the second stops now.

use tokio::sync::watch;

use crate::diag::{Code, Diagnostic};

/// What asked for the stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

/// Signals as they come in.
pub struct Stops {
    /// How many so far.
    pub count: watch::Receiver<u8>,
    first: watch::Receiver<Option<Signal>>,
}

impl Stops {
    /// Listens from now on; until then a signal ends the process as usual.
    ///
    /// # Errors
    /// The operating system refuses to hand signals over.
    pub fn listen() -> Result<Self, Diagnostic> {
        use tokio::signal::unix::{SignalKind, signal};
        let refused = |error| Diagnostic::error(Code::Usage, format!("cannot listen for signals: {error}"));
        let mut interrupt = signal(SignalKind::interrupt()).map_err(refused)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(refused)?;
        let (counter, count) = watch::channel(0_u8);
        let (namer, first) = watch::channel(None);
        tokio::spawn(async move {
            loop {
                let signal = tokio::select! {
                    _ = interrupt.recv() => Signal::Interrupt,
                    _ = terminate.recv() => Signal::Terminate,
                };
                namer.send_modify(|first| {
                    first.get_or_insert(signal);
                });
                counter.send_modify(|count| *count = count.saturating_add(1));
            }
        });
        Ok(Self { count, first })
    }

    /// Keeps a closed terminal from ending the process, for as long as the value lives.
    ///
    /// # Errors
    /// The operating system refuses to hand the signal over.
    pub fn outlive_the_terminal() -> Result<tokio::signal::unix::Signal, Diagnostic> {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::hangup())
            .map_err(|error| Diagnostic::error(Code::Usage, format!("cannot listen for signals: {error}")))
    }

    /// The first signal.
    pub fn first(&self) -> Option<Signal> {
        *self.first.borrow()
    }

    /// Ends at the first signal.
    pub async fn wait(mut self) {
        // The listener lives as long as the runtime, so the channel is open.
        let _ = self.count.wait_for(|count| *count > 0).await;
    }
}
