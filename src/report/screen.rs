//! The one gate to stdout and stderr.

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Arc, PoisonError, RwLock};

use crate::diag::{Characters, Colour, Look};
use crate::secrets::Secrets;

use super::human::style::printable;

/// Columns where nobody says how many there are: pipes and files.
pub const WIDTH: usize = 100;

/// When colours are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColourChoice {
    /// On terminals, unless `NO_COLOR` is set.
    #[default]
    Auto,
    Always,
    Never,
}

/// One stream: where it goes and what it can show.
pub struct Stream {
    writer: Box<dyn Write + Send>,
    /// Columns, colours and characters.
    pub look: Look,
    /// Whether a person sees it while it is written.
    pub terminal: bool,
}

impl Stream {
    /// The process's stdout.
    pub fn stdout(choice: ColourChoice) -> Self {
        let stream = io::stdout();
        let (terminal, auto) = (stream.is_terminal(), anstream::AutoStream::choice(&stream));
        Self { look: look(choice, auto, terminal), terminal, writer: Box::new(stream) }
    }

    /// The process's stderr.
    pub fn stderr(choice: ColourChoice) -> Self {
        let stream = io::stderr();
        let (terminal, auto) = (stream.is_terminal(), anstream::AutoStream::choice(&stream));
        // On a terminal without cursor control (`TERM=dumb`, none at all) bars draw nothing: it is read like a log.
        let bars = terminal && !indicatif::ProgressDrawTarget::stderr().is_hidden();
        Self { look: look(choice, auto, terminal), terminal: bars, writer: Box::new(stream) }
    }

    /// Any writer, seen by nobody.
    pub fn plain(writer: Box<dyn Write + Send>, width: usize) -> Self {
        Self { writer, look: Look { width, ..Look::PLAIN }, terminal: false }
    }
}

fn look(choice: ColourChoice, auto: anstream::ColorChoice, terminal: bool) -> Look {
    let colour = match (choice, auto) {
        (ColourChoice::Never, _) | (ColourChoice::Auto, anstream::ColorChoice::Never) => Colour::Off,
        (ColourChoice::Always | ColourChoice::Auto, _) => Colour::On,
    };
    let width = terminal.then(terminal_size::terminal_size).flatten();
    let width = width.map_or(WIDTH, |(terminal_size::Width(columns), _)| usize::from(columns));
    let characters = if terminal { Characters::Unicode } else { Characters::Ascii };
    // Narrower than this nothing fits; wider than this nobody reads.
    Look { width: width.clamp(40, 160), colour, characters }
}

/// What no stream shows, wherever it stands in a text: learned when the options are read and when a stack is loaded.
#[derive(Clone, Debug, Default)]
pub struct Masks(Arc<RwLock<Secrets>>);

impl Masks {
    /// Learns more.
    pub fn learn(&self, secrets: &Secrets) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).extend(secrets);
    }

    /// A text without them.
    pub fn out_of(&self, text: &str) -> String {
        self.0.read().unwrap_or_else(PoisonError::into_inner).out_of(text)
    }
}

/// Two streams. Texts come with colours, which are taken out where they are not wanted.
pub struct Screen {
    data: Stream,
    talk: Stream,
    masks: Masks,
    error: Option<io::Error>,
}

impl Screen {
    /// Data goes to the first, everything else to the second.
    pub fn new(data: Stream, talk: Stream) -> Self {
        Self { data, talk, masks: Masks::default(), error: None }
    }

    /// The same, and these are never shown.
    #[must_use]
    pub fn without(self, masks: Masks) -> Self {
        Self { masks, ..self }
    }

    /// What the stream of data can show.
    pub fn data_look(&self) -> Look {
        self.data.look
    }

    /// What the stream of everything else can show.
    pub fn talk_look(&self) -> Look {
        self.talk.look
    }

    /// Whether a person sees the stream of everything else while it is written.
    pub fn talk_is_terminal(&self) -> bool {
        self.talk.terminal
    }

    /// Writes data.
    pub fn data(&mut self, text: &str) {
        let written = write(&mut self.data, &self.masks.out_of(text));
        self.keep(written);
    }

    /// Writes anything else.
    pub fn talk(&mut self, text: &str) {
        let written = write(&mut self.talk, &self.masks.out_of(text));
        self.keep(written);
    }

    /// The first error of writing, once.
    ///
    /// # Errors
    /// That error.
    pub fn finish(&mut self) -> io::Result<()> {
        self.error.take().map_or(Ok(()), Err)
    }

    fn keep(&mut self, written: io::Result<()>) {
        if let (Err(error), None) = (written, &self.error) {
            self.error = Some(error);
        }
    }
}

fn write(stream: &mut Stream, text: &str) -> io::Result<()> {
    match stream.look.colour {
        Colour::On => stream.writer.write_all(printable(text).as_bytes())?,
        Colour::Off => {
            let plain = anstream::adapter::strip_str(text).to_string();
            stream.writer.write_all(printable(&plain).as_bytes())?;
        }
    }
    stream.writer.flush()
}
