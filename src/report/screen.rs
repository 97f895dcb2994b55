//! The only place that writes to stdout and stderr.

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Arc, PoisonError, RwLock};

use model::diag::{Characters, Colour, Look};
use model::secrets::Secrets;

use super::human::style::printable;

/// The width in columns if it is unknown: for pipes and files.
pub const WIDTH: usize = 100;

/// When colors are used.
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
    /// Columns, colors and characters.
    pub look: Look,
    /// True if the stream is a terminal that can draw bars.
    pub terminal: bool,
    /// True if the stream is a terminal.
    shows_bars: bool,
}

impl Stream {
    /// Creates the process's stdout.
    pub fn stdout(choice: ColourChoice) -> Self {
        let stream = io::stdout();
        let (terminal, auto) = (stream.is_terminal(), anstream::AutoStream::choice(&stream));
        Self { look: look(choice, auto, terminal), terminal, shows_bars: terminal, writer: Box::new(stream) }
    }

    /// Creates the process's stderr.
    pub fn stderr(choice: ColourChoice) -> Self {
        let stream = io::stderr();
        let (terminal, auto) = (stream.is_terminal(), anstream::AutoStream::choice(&stream));
        // On a terminal without cursor control (`TERM=dumb`, none at all) bars draw nothing: it is read like a log.
        let bars = terminal && !indicatif::ProgressDrawTarget::stderr().is_hidden();
        Self {
            look: look(choice, auto, terminal),
            terminal: bars,
            shows_bars: terminal,
            writer: Box::new(stream),
        }
    }

    /// Creates a stream on any writer, without colors.
    pub fn plain(writer: Box<dyn Write + Send>, width: usize) -> Self {
        Self { writer, look: Look { width, ..Look::PLAIN }, terminal: false, shows_bars: false }
    }
}

fn look(choice: ColourChoice, auto: anstream::ColorChoice, terminal: bool) -> Look {
    let colour = match (choice, auto) {
        (ColourChoice::Never, _) | (ColourChoice::Auto, anstream::ColorChoice::Never) => Colour::Off,
        (ColourChoice::Always | ColourChoice::Auto, _) => Colour::On,
    };
    let width = terminal.then(terminal_size::terminal_size).flatten();
    let width = width.map_or(WIDTH, |(terminal_size::Width(columns), _)| usize::from(columns));
    let characters = if terminal && shows_unicode(|name| std::env::var(name).ok()) {
        Characters::Unicode
    } else {
        Characters::Ascii
    };
    // Narrower than this nothing fits; wider than this nobody reads.
    Look { width: width.clamp(40, 160), colour, characters }
}

/// Returns true if a terminal can show more than ASCII: its kind is known, and the locale uses UTF-8. The first of these
/// variables that is set and not empty decides, as in POSIX.
fn shows_unicode(env: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(&env).find(|value| !value.is_empty());
    let locale = locale.unwrap_or_default().to_ascii_lowercase();
    env("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
        && (locale.contains("utf-8") || locale.contains("utf8"))
}

/// Replaces the program's own non-ASCII characters.
fn in_ascii(text: &str) -> String {
    let signs = [("×", "x"), ("–", "-"), ("—", "-"), ("…", "..."), ("→", "->"), ("✓", "ok")];
    signs.iter().fold(text.to_owned(), |text, (sign, ascii)| text.replace(sign, ascii))
}

/// Secrets that no stream shows, at any place in a text: learned when the options are read and when a stack is loaded.
#[derive(Clone, Debug, Default)]
pub struct Masks(Arc<RwLock<Secrets>>);

impl Masks {
    /// Adds secrets.
    pub fn add(&self, secrets: &Secrets) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).extend(secrets);
    }

    /// Returns a text with the secrets replaced.
    pub fn out_of(&self, text: &str) -> String {
        self.0.read().unwrap_or_else(PoisonError::into_inner).out_of(text)
    }
}

/// The two output streams. Texts contain colors, which are removed if the stream does not show them.
pub struct Screen {
    data: Stream,
    messages: Stream,
    masks: Masks,
    error: Option<io::Error>,
}

impl Screen {
    /// Data goes to the first, everything else to the second.
    pub fn new(data: Stream, messages: Stream) -> Self {
        Self { data, messages, masks: Masks::default(), error: None }
    }

    /// Returns this screen with other masks: the secrets that it never shows.
    #[must_use]
    pub fn without(self, masks: Masks) -> Self {
        Self { masks, ..self }
    }

    /// Returns the width, colors and characters of the data stream.
    pub fn data_look(&self) -> Look {
        self.data.look
    }

    /// Returns the width, colors and characters of the stream of everything else.
    pub fn messages_look(&self) -> Look {
        self.messages.look
    }

    /// Returns true if the stream of everything else is a terminal that can draw bars.
    pub fn has_terminal(&self) -> bool {
        self.messages.terminal
    }

    /// Writes data.
    pub fn data(&mut self, text: &str) {
        let written = write(&mut self.data, &self.masks.out_of(text));
        self.keep(written);
    }

    /// Writes anything else.
    pub fn message(&mut self, text: &str) {
        let written = write(&mut self.messages, &self.masks.out_of(text));
        self.keep(written);
    }

    /// Returns the first error of writing, once.
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
    // Files and pipes get UTF-8: who reads them knows, and data goes there.
    let ascii = (stream.shows_bars && stream.look.characters == Characters::Ascii).then(|| in_ascii(text));
    let text = ascii.as_deref().unwrap_or(text);
    match stream.look.colour {
        Colour::On => stream.writer.write_all(printable(text).as_bytes())?,
        Colour::Off => {
            let plain = anstream::adapter::strip_str(text).to_string();
            stream.writer.write_all(printable(&plain).as_bytes())?;
        }
    }
    stream.writer.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_what_it_can_show() {
        let cases: [(&[(&str, &str)], bool); 6] = [
            (&[("TERM", "xterm"), ("LANG", "en_US.UTF-8")], true),
            (&[("TERM", "xterm"), ("LANG", "C"), ("LC_ALL", "C.utf8")], true),
            (&[("TERM", "xterm"), ("LANG", "en_US.UTF-8"), ("LC_ALL", "POSIX")], false),
            (&[("TERM", "dumb"), ("LANG", "en_US.UTF-8")], false),
            (&[("LANG", "en_US.UTF-8")], false),
            (&[("TERM", "xterm")], false),
        ];
        for (known, expect) in cases {
            let env =
                |name: &str| known.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            assert_eq!(shows_unicode(env), expect, "{known:?}");
        }
        assert_eq!(in_ascii("0–4 × a → b — c…"), "0-4 x a -> b - c...");
    }
}
