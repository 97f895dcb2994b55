//! The user's own code: files that a section names. They are copied to where its processes run, and are first on Python's path.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use model::address::FieldPath;

/// The variable with the folders that Python imports from, before its own.
pub const PYTHON_PATH: &str = "PYTHONPATH";

/// The number of characters of the digest that name the files on a host.
const DIGEST: usize = 16;

/// Keys for the user's own code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct CodeKeys {
    /// Your own code: files and folders, relative to the folder of the stack file: `["train.py", "lib/"]`. They are copied to where the processes
    /// run, where they are the first place that Python imports from, and the folder that the processes work in. A folder is copied with all
    /// below it but `.git`, `.venv`, `__pycache__`, `.ipynb_checkpoints` and `*.pyc`. On Kubernetes they are read-only, and 976 KiB at most.
    /// An edited file is a change, as one of `env` is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// The folder that the processes work in: an absolute path, or one below `files`. Default the folder of `files`; without them, the
    /// home on hosts and the image's folder on Kubernetes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// The contents of `files`, read when the stack is loaded.
    #[serde(default, skip_serializing_if = "SourceFiles::is_empty")]
    #[schemars(skip)]
    pub contents: SourceFiles,
}

impl CodeKeys {
    /// Returns the code of the section at this path.
    pub fn at(&self, section: &FieldPath) -> Code<'_> {
        Code {
            files: (&self.contents, section.key("files")),
            working_dir: self.working_dir.as_deref().map(|folder| (folder, section.key("working_dir"))),
        }
    }
}

/// The code of a section, or of the section that it copies, with the paths of the keys in the stack file.
#[derive(Clone, Debug)]
pub struct Code<'a> {
    pub files: (&'a SourceFiles, FieldPath),
    pub working_dir: Option<(&'a str, FieldPath)>,
}

impl<'a> Code<'a> {
    /// Returns this code, with what it lacks taken from another section.
    #[must_use]
    pub fn or(self, other: Option<Code<'a>>) -> Self {
        let Some(other) = other else { return self };
        let files = if self.files.0.is_empty() { other.files } else { self.files };
        Self { files, working_dir: self.working_dir.or(other.working_dir) }
    }

    /// Returns this code with another working folder, if one is given.
    #[must_use]
    pub fn working_in(&self, folder: Option<&'a str>, path: FieldPath) -> Self {
        let own = folder.map(|folder| (folder, path));
        Self { files: self.files.clone(), working_dir: own.or_else(|| self.working_dir.clone()) }
    }

    /// Returns the digest of the files; `None` without files.
    pub fn digest(&self) -> Option<String> {
        let (files, _) = self.files;
        (!files.is_empty()).then(|| files.digest())
    }

    /// Returns the working folder as the section has it.
    pub fn folder(&self) -> Option<&'a str> {
        self.working_dir.as_ref().map(|(folder, _)| *folder)
    }
}

/// Returns true for a folder that is not relative to the files of its section.
pub fn is_absolute(folder: &str) -> bool {
    folder.starts_with(['/', '~'])
}

/// Files by their paths in the folder that they are copied to, which has `/` between names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SourceFiles(BTreeMap<String, SourceFile>);

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    pub executable: bool,
    /// Not as text: code that assigns passwords has no secrets of this program's own, which hides what looks like one.
    base64: String,
}

impl SourceFile {
    pub fn new(executable: bool, bytes: &[u8]) -> Self {
        Self { executable, base64: STANDARD.encode(bytes) }
    }

    /// Returns the content in base64.
    pub fn base64(&self) -> &str {
        &self.base64
    }

    /// Returns the content.
    pub fn bytes(&self) -> Vec<u8> {
        STANDARD.decode(&self.base64).unwrap_or_default()
    }

    /// Describes the content and the mode in a few characters, for plans.
    pub fn short_digest(&self) -> String {
        let digest = blake3::hash(self.base64.as_bytes()).to_hex();
        format!("{}{}", &digest.as_str()[..12], if self.executable { ", executable" } else { "" })
    }
}

impl SourceFiles {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if a folder has files.
    pub fn has_folder(&self, folder: &str) -> bool {
        let below = format!("{folder}/");
        self.0.range(below.clone()..).next().is_some_and(|(path, _)| path.starts_with(&below))
    }

    /// Adds a file. Returns `false` if another one has its path, or if one of the two is a folder of the other.
    pub fn add(&mut self, path: String, file: SourceFile) -> bool {
        let mut above = path.match_indices('/').map(|(end, _)| &path[..end]);
        if self.has_folder(&path) || above.any(|folder| self.0.contains_key(folder)) {
            return false;
        }
        match self.0.get(&path) {
            Some(known) => *known == file,
            None => self.0.insert(path, file).is_none(),
        }
    }

    /// Returns the files by path.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&String, &SourceFile)> {
        self.0.iter()
    }

    /// Returns the sum of the sizes in bytes.
    pub fn size(&self) -> usize {
        // Of base64, three bytes are four characters.
        self.0.values().map(|file| file.base64.trim_end_matches('=').len() * 3 / 4).sum()
    }

    /// Returns about how many bytes the list of the files takes in the volume of a pod: each has a key, a path, and their names.
    pub fn listing(&self) -> usize {
        const AROUND: usize = 50;
        self.0.keys().map(|path| 2 * path.len() + AROUND).sum()
    }

    fn hash(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        for (path, SourceFile { executable, base64 }) in &self.0 {
            for part in [path.as_bytes(), &[u8::from(*executable)], base64.as_bytes()] {
                // With their lengths, no two lists have the same bytes.
                hasher.update(&part.len().to_le_bytes()).update(part);
            }
        }
        hasher.finalize()
    }

    /// Returns the digest of paths, modes and contents.
    pub fn digest(&self) -> String {
        self.hash().to_hex().as_str()[..DIGEST].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(all: &[(&str, bool, &str)]) -> SourceFiles {
        let mut files = SourceFiles::default();
        for (path, executable, text) in all {
            assert!(files.add((*path).to_owned(), SourceFile::new(*executable, text.as_bytes())));
        }
        files
    }

    #[test]
    fn paths_modes_and_contents_make_the_digest() {
        let one = files(&[("a.py", false, "1"), ("b.py", false, "2")]);
        assert_eq!(one.digest(), files(&[("b.py", false, "2"), ("a.py", false, "1")]).digest());
        for other in [
            files(&[("a.py", false, "1"), ("b.py", false, "3")]),
            files(&[("a.py", true, "1"), ("b.py", false, "2")]),
            files(&[("a.py", false, "1"), ("c.py", false, "2")]),
            files(&[("a.py", false, "1")]),
        ] {
            assert_ne!(one.digest(), other.digest());
        }
        assert_eq!(one.size(), 2);
        assert_eq!(files(&[("a", false, "12345")]).size(), 5);
    }

    #[test]
    fn a_path_has_one_content() {
        let mut all = files(&[("a.py", false, "1")]);
        assert!(all.add("a.py".to_owned(), SourceFile::new(false, b"1")));
        assert!(!all.add("a.py".to_owned(), SourceFile::new(true, b"1")));
        // A file is no folder.
        assert!(!all.add("a.py/b".to_owned(), SourceFile::new(false, b"1")));
        assert!(all.add("lib/b.py".to_owned(), SourceFile::new(false, b"1")) && all.has_folder("lib"));
        assert!(!all.add("lib".to_owned(), SourceFile::new(false, b"1")) && !all.has_folder("li"));
    }

    #[test]
    fn a_section_has_what_it_does_not_say_from_the_one_that_it_copies() {
        let (own, like) = (FieldPath::keys(["dask_job", "j"]), FieldPath::keys(["dask_cluster", "c"]));
        let named = CodeKeys { contents: files(&[("a.py", false, "1")]), ..CodeKeys::default() };
        let placed = CodeKeys { working_dir: Some("/data".to_owned()), ..CodeKeys::default() };
        let code = placed.at(&own).or(Some(named.at(&like)));
        assert_eq!(code.files.1.to_string(), "dask_cluster.c.files");
        assert_eq!(code.working_dir.unwrap().1.to_string(), "dask_job.j.working_dir");
    }
}
