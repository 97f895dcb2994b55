//! One request about objects of a kind.

use std::sync::Arc;

use jiff::Timestamp;

use super::object::Key;
use super::request::{Place, Request};
use super::scheme::Kind;
use super::selector::Selector;
use super::status::Status;

/// A request with what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Of which kind the objects are.
    pub kind: &'a Arc<Kind>,
    /// Where they are.
    pub place: &'a Place,
    /// The request.
    pub request: &'a Request,
    /// When.
    pub now: Timestamp,
}

impl Call<'_> {
    /// The object that the path names.
    pub fn key(&self) -> Key {
        let Place { namespace, name, .. } = self.place;
        Key::new(&self.kind.group, &self.kind.plural, namespace, name)
    }

    /// There is none.
    pub fn not_found(&self) -> Status {
        Status::not_found(&self.kind.group, &self.kind.plural, &self.place.name)
    }

    /// Returns the selector of the objects in the collection that the call is about.
    pub fn selector(&self) -> Result<Selector, Status> {
        if !self.place.name.is_empty() {
            return Ok(Selector::name(&self.place.name));
        }
        let own = |name: &str| self.request.param(name).unwrap_or_default();
        let selector = Selector::parse(own("labelSelector"), own("fieldSelector"))?;
        selector.check(self.kind)?;
        Ok(selector)
    }
}
