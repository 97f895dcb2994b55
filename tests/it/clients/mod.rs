//! Programs of the system: gcloud, kubectl, Python.

mod first_hour;
pub mod gcloud;
pub mod gcloud_oracle;
pub mod imports;
pub mod kubectl;
mod kubectl_requests;
