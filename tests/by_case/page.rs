//! The terminal of a test: what a report writes can be looked at.

#![allow(dead_code, clippy::unwrap_used, reason = "`cases` and `it` take a part each")]

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use dask_infra::report::human::Detail;
use dask_infra::report::{Human, Screen, Stream};

/// A writer whose text can be looked at.
#[derive(Clone, Default)]
pub struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    pub fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut self.0.lock().unwrap())).unwrap()
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A screen of this width, its data and its talk.
pub fn screen(width: usize) -> (Screen, Page, Page) {
    let (data, talk) = (Page::default(), Page::default());
    let stream = |page: &Page| Stream::plain(Box::new(page.clone()), width);
    (Screen::new(stream(&data), stream(&talk)), data, talk)
}

/// A report for people, its data and its talk.
pub fn human(detail: Detail, width: usize) -> (Human, Page, Page) {
    let (screen, data, talk) = screen(width);
    (Human::new(screen, detail, "dask-infra".to_owned()), data, talk)
}
