//! Checks that references are in places where they are resolved.

use crate::rules::Context;
use model::diag::{Code, Diagnostic};

/// Reports references that would be applied as plain text, unless `[allow]` has a reason.
pub(crate) fn words_are_read(context: &mut Context<'_>) {
    for word in context.words {
        if context.allows(&word.place) {
            continue;
        }
        let what =
            format!("`{}` is read {}; `{}` would get it as text", word.text, word.read_in(), word.name);
        let help = format!(
            "{}; if the text itself is meant, allow it: `[allow.literal_secrets]` `{} = \"why\"`",
            word.instead(),
            crate::rules::secrets::quoted(&word.place)
        );
        context.say_of_value(
            Diagnostic::error(Code::EnvironmentNotHere, what).at_value(word.place.clone(), "").help(help),
        );
    }
}
