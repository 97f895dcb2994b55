//! Refusals of Google's APIs because of the project or the credentials, classified by `google.rpc.ErrorInfo`, and by the message
//! only if the response has none. Pure, so that recorded bodies are its tests. Source: googleapis
//! `google/api/error_reason.proto`; answers in tests/data/google-refusals.json.

use serde_json::Value;

/// Projects of `gcloud`'s own OAuth clients. They are charged if a user's credentials name no other project.
const CLIENTS: [&str; 2] = ["764086051850", "32555940559"];

/// Reasons why Google's APIs refuse a project or credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DenialCause {
    ApiDisabled {
        service: String,
        project: Option<String>,
    },
    /// User credentials, without a project to charge.
    NoQuotaProject {
        service: String,
    },
    /// The credentials may not charge this project.
    QuotaProject {
        project: Option<String>,
    },
    NoProject,
    Billing {
        project: Option<String>,
    },
    /// The token lacks scopes; the account may have the permission.
    Scopes,
    OrgPolicy {
        constraint: String,
    },
}

impl DenialCause {
    /// Returns the cause that an error's body and message name.
    pub fn from_error(body: Option<&Value>, message: &str) -> Option<Self> {
        let words = message.to_ascii_lowercase();
        let details = body.and_then(|body| body.pointer("/error/details")).and_then(Value::as_array);
        let infos: Vec<&Value> = details.into_iter().flatten().collect();
        if words.contains("requires a quota project") {
            return Some(Self::NoQuotaProject { service: service(&infos) });
        }
        let named = infos.iter().find_map(|info| Self::by_reason(info, &infos));
        named.or_else(|| Self::by_words(message, &words, &infos))
    }

    fn by_reason(info: &Value, infos: &[&Value]) -> Option<Self> {
        let project = consumer(info);
        match info["reason"].as_str()? {
            "SERVICE_DISABLED" if project.as_deref().is_some_and(|project| CLIENTS.contains(&project)) => {
                Some(Self::NoQuotaProject { service: service(infos) })
            }
            "SERVICE_DISABLED" => Some(Self::ApiDisabled { service: service(infos), project }),
            "USER_PROJECT_DENIED" => Some(Self::QuotaProject { project }),
            "CONSUMER_INVALID" | "PROJECT_NOT_FOUND" => Some(Self::NoProject),
            "BILLING_DISABLED" => Some(Self::Billing { project }),
            "ACCESS_TOKEN_SCOPE_INSUFFICIENT" => Some(Self::Scopes),
            _ => None,
        }
    }

    fn by_words(message: &str, words: &str, infos: &[&Value]) -> Option<Self> {
        // With and without backticks: terraform-google-modules/terraform-google-kubernetes-engine 2344.
        let named = message.split_once("onstraint ").map(|(_, rest)| rest.trim_start_matches('`'));
        if let Some(rest) = named.and_then(|rest| rest.strip_prefix("constraints/")) {
            let ends = |c: char| c.is_whitespace() || c == ',' || c == '`';
            let constraint = rest.split(ends).next().unwrap_or_default();
            let constraint = constraint.trim_end_matches('.').to_owned();
            return Some(Self::OrgPolicy { constraint });
        }
        if words.contains("has not been used in project") {
            Some(Self::ApiDisabled { service: service(infos), project: None })
        } else if words.contains("insufficient authentication scopes") {
            Some(Self::Scopes)
        } else if words.contains("denied on resource project") {
            Some(Self::NoProject)
        } else if words.contains("billing")
            && ["disabled", "not enabled", "to be enabled"].iter().any(|word| words.contains(word))
        {
            Some(Self::Billing { project: None })
        } else {
            None
        }
    }

    /// Describes the problem; `project` is the stack's.
    pub fn what(&self, project: &str) -> String {
        match self {
            Self::ApiDisabled { service, project: named } => {
                let project = named.as_deref().unwrap_or(project);
                format!("the API {service} is not enabled in project {project}")
            }
            Self::NoQuotaProject { service } => {
                format!("{service} requires a quota project, and these user credentials name none")
            }
            Self::QuotaProject { project: named } => {
                let project = named.as_deref().unwrap_or(project);
                format!(
                    "these credentials may not charge requests to the quota project {project} (permission serviceusage.services.use)"
                )
            }
            Self::NoProject => {
                format!("project {project} does not exist, or these credentials have no access to it")
            }
            Self::Billing { project: named } => {
                format!("billing is not enabled for project {}", named.as_deref().unwrap_or(project))
            }
            Self::Scopes => {
                "the access token lacks the scope cloud-platform: this machine was created with fewer"
                    .to_owned()
            }
            Self::OrgPolicy { constraint } => format!("the organization policy {constraint} forbids it"),
        }
    }

    /// Returns the command to run next.
    pub fn remedy(&self, project: &str) -> String {
        match self {
            Self::ApiDisabled { service, project: named } => {
                format!("gcloud services enable {service} --project {}", named.as_deref().unwrap_or(project))
            }
            Self::NoQuotaProject { .. } => {
                format!(
                    "gcloud auth application-default set-quota-project {project}; GOOGLE_CLOUD_QUOTA_PROJECT names one for \
                     this shell"
                )
            }
            Self::QuotaProject { project: named } => {
                let charged = named.as_deref().unwrap_or(project);
                format!(
                    "charge another project: gcloud auth application-default set-quota-project {project}; or an administrator \
                     of {charged} grants it: gcloud projects add-iam-policy-binding {charged} --member user:YOU --role \
                     roles/serviceusage.serviceUsageConsumer"
                )
            }
            Self::NoProject => {
                "use the project's ID, not its name: `gcloud projects list` lists the projects you have access to"
                    .to_owned()
            }
            Self::Billing { project: named } => {
                format!(
                    "gcloud billing projects link {} --billing-account ACCOUNT; `gcloud billing accounts list` lists accounts",
                    named.as_deref().unwrap_or(project)
                )
            }
            Self::Scopes => {
                "stop the machine and give it the scope: gcloud compute instances set-service-account VM --scopes \
                 cloud-platform; or log in on it: gcloud auth application-default login"
                    .to_owned()
            }
            Self::OrgPolicy { constraint } => {
                format!(
                    "gcloud org-policies describe {constraint} --project {project} --effective shows what it allows; an \
                     administrator of the organization can change it"
                )
            }
        }
    }
}

/// Returns `p-1` of `projects/p-1`.
fn consumer(info: &Value) -> Option<String> {
    let consumer = info.pointer("/metadata/consumer").and_then(Value::as_str)?;
    Some(consumer.strip_prefix("projects/").unwrap_or(consumer).to_owned())
}

fn service(infos: &[&Value]) -> String {
    let named = infos.iter().find_map(|info| info.pointer("/metadata/service")?.as_str());
    named.unwrap_or("container.googleapis.com").to_owned()
}

/// Returns the project in the path of a request: `GET /v1/projects/P/…`.
pub fn project_of(request: &str) -> &str {
    let rest = request.split_once("/projects/").map_or("PROJECT", |(_, rest)| rest);
    rest.split(['/', ':']).next().unwrap_or("PROJECT")
}
