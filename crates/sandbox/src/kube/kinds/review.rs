//! Access reviews: everybody may do everything here, and is `admin`. The shapes are those of
//! `k8s.io/api/authorization/v1` and `authentication/v1`.

use serde_json::json;

use super::super::strategy::Strategy;

const AUTHORIZATION: &str = "authorization.k8s.io";

pub const STRATEGIES: &[Strategy] = &[
    access("SelfSubjectAccessReview"),
    access("SubjectAccessReview"),
    access("LocalSubjectAccessReview"),
    Strategy {
        review: Some(|| {
            json!({"incomplete": false,
                "nonResourceRules": [{"nonResourceURLs": ["*"], "verbs": ["*"]}],
                "resourceRules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]})
        }),
        ..Strategy::of(AUTHORIZATION, "SelfSubjectRulesReview")
    },
    Strategy {
        review: Some(
            || json!({"userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]}}),
        ),
        ..Strategy::of("authentication.k8s.io", "SelfSubjectReview")
    },
];

const fn access(kind: &'static str) -> Strategy {
    Strategy { review: Some(|| json!({"allowed": true})), ..Strategy::of(AUTHORIZATION, kind) }
}
