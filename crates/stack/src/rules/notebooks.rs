//! Checks of notebooks: their images and passwords.

use crate::rules::Context;
use crate::rules::jobs::unknown_cluster;
use kinds::kubernetes::endpoint;
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};

/// The help text on how to create the Secret.
const MAKE: &str = "`kubectl create secret generic jupyter --from-literal=password=…` creates the Secret, \
     `password = { secret = \"jupyter\", key = \"password\" }` refers to it";

/// Checks that a notebook has an image or names a cluster of the file.
pub(crate) fn notebooks_have_an_image(context: &mut Context<'_>) {
    for (key, notebook) in &context.stack.notebook {
        let path = FieldPath::keys(["notebook", key]);
        match (&notebook.like, &notebook.image) {
            (Some(like), image) => {
                let empty = "this file has no Dask cluster: give `image` instead";
                unknown_cluster(context, &path.key("like"), like, empty);
                let external =
                    context.stack.dask_cluster.get(like).filter(|cluster| !cluster.manage.is_managed());
                if image.is_none() && external.is_some_and(|cluster| cluster.image.is_empty()) {
                    let message = format!(
                        "the Dask cluster `{like}` is managed elsewhere, and the file does not give its image"
                    );
                    let finding =
                        Diagnostic::error(Code::NotebookImage, message).at_value(path.key("like"), "copied");
                    context.say(finding.help("give the notebook an `image` with Jupyter in it"));
                }
            }
            (None, Some(_)) => {}
            (None, None) => {
                let message = format!("`{path}` has no image");
                let finding = Diagnostic::error(Code::NotebookImage, message)
                    .at_value(path, "neither `like` nor `image`");
                context.say(finding.help(
                    "`like = \"NAME\"` uses the image that matches a Dask cluster of this file; `image` names \
                     one with Jupyter in it",
                ));
            }
        }
    }
}

/// Checks that a notebook has a password, as a reference to a Secret.
pub(crate) fn notebooks_have_a_password(context: &mut Context<'_>) {
    for (key, notebook) in &context.stack.notebook {
        let path = FieldPath::keys(["notebook", key]);
        let said = notebook
            .keys
            .env
            .keys()
            .find(|name| *name == endpoint::PASSWORD || *name == "DASK_SCHEDULER_ADDRESS");
        if let Some(name) = said {
            let what = match name == endpoint::PASSWORD {
                true => "a password does not belong in the file",
                false => "`like` sets the scheduler",
            };
            let finding = Diagnostic::error(Code::NotebookPassword, format!("`{name}`: {what}"));
            context.say(finding.at_key(path.key("env").key(name), "").help("remove it"));
        }
        let Some(password) = &notebook.password else {
            let message =
                format!("`{path}` has no password, and anyone who opens it can run code in the cluster");
            let finding =
                Diagnostic::error(Code::NotebookPassword, message).at_value(path, "there is no default");
            context.say(finding.help(MAKE));
            continue;
        };
        // Looked at with the variables of all sections.
        if password.variable().is_some() {
            continue;
        }
        let place = path.key("password");
        let object = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        let data = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let wrong = [
            ("secret", &password.secret, password.secret.chars().all(object)),
            ("key", &password.key, password.key.chars().all(data)),
        ];
        for (field, value, _) in wrong.into_iter().filter(|(_, value, fits)| value.is_empty() || !fits) {
            let what = if field == "secret" { "name of a Secret" } else { "key in a Secret" };
            let message = format!("`{value}` cannot be the {what}");
            let finding = Diagnostic::error(Code::NotebookPassword, message).at_value(place.key(field), "");
            let help = match field {
                "secret" => format!("it is the name of a Secret, not the password itself: {MAKE}"),
                _ => "letters, digits, `-`, `_` and `.`".to_owned(),
            };
            context.say(finding.help(help));
        }
    }
}
