//! Access to the disk, which is only in this file of the crate: the stack file and the files that it may name, which are those of
//! its repository. A stack is untrusted input: it must not be able to print other files of the machine that reads it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ignore::gitignore::Gitignore;

use model::diag::{Code, Diagnostic};

/// The maximum size in bytes of a file that a stack names. The largest known ones are CRDs, with 1 MiB.
pub const LARGEST: u64 = 16 * 1024 * 1024;

/// How far a stack file is trusted: the files on disk that it may name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Only files of its repository.
    #[default]
    Repository,
    /// All files, because the user has allowed it outside the stack.
    Everything,
}

/// The folder that paths must not leave.
#[derive(Clone, Debug)]
pub struct Fence {
    root: Option<PathBuf>,
}

/// Reasons why a file is not read.
#[derive(Debug)]
pub enum Unread {
    /// It is outside this folder.
    Outside(PathBuf),
    /// It is below `.git`, where tokens may be.
    Git,
    /// It is not a regular file, but a pipe or a device.
    Special,
    /// It is larger than [`LARGEST`].
    Large,
    /// A link to a folder above it.
    Cycle,
    /// Its name is not UTF-8 text.
    Name,
    /// An IO error.
    Io(io::Error),
}

/// A file that is copied, with the path below the folder that the stack names.
pub(super) struct Copied {
    /// Empty for a file that the stack names itself. The names are separated by `/`.
    pub path: String,
    pub executable: bool,
    pub bytes: Vec<u8>,
}

/// Files that are copied, and those that cannot be.
#[derive(Default)]
pub(super) struct Copies {
    pub files: Vec<Copied>,
    pub unread: Vec<(PathBuf, Unread)>,
    /// Bytes so far.
    size: u64,
    /// Paths that are not copied with a folder: the stack's own files, so that an edit of the stack is no edit of code, and the state of
    /// hosts. They are canonical.
    left_out: Vec<PathBuf>,
    /// The rules of `.gitignore` of the folders around the current one, the innermost last.
    ignored: Vec<Gitignore>,
}

impl Copies {
    /// Adds the rules of a folder, if it has some. Returns the number of rules before.
    fn enter(&mut self, folder: &Path) -> usize {
        let (before, file) = (self.ignored.len(), folder.join(".gitignore"));
        if file.is_file() {
            self.ignored.push(Gitignore::new(file).0);
        }
        before
    }

    /// Returns true for a path that the innermost rule about it leaves out.
    fn is_ignored(&self, path: &Path, is_dir: bool) -> bool {
        let mut found = self.ignored.iter().rev().map(|rules| rules.matched(path, is_dir));
        found.find(|found| !found.is_none()).is_some_and(|found| found.is_ignore())
    }
}

/// Names in folders that are not copied: what git, Python, tools for it and editors write beside code, and state of this program.
const LEFT_OUT: [&str; 12] = [
    ".git",
    "__pycache__",
    ".venv",
    ".ipynb_checkpoints",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".tox",
    ".nox",
    "node_modules",
    ".DS_Store",
    ".dask-infra",
];

fn is_left_out(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let is_compiled = Path::new(name).extension().is_some_and(|end| end == "pyc");
    // Locks, backups and swap files of Emacs and Vim.
    let is_of_editor = name.starts_with(".#")
        || name.ends_with('~')
        || name.starts_with('.') && [".swp", ".swo"].iter().any(|end| name.ends_with(end));
    LEFT_OUT.contains(&name) || is_compiled || is_of_editor
}

/// Returns true for content that a system runs as a program. On file systems without modes every file has the bit.
fn is_program(bytes: &[u8]) -> bool {
    bytes.starts_with(b"#!") || bytes.starts_with(b"\x7fELF")
}

impl Fence {
    /// Creates the fence around the repository of a folder: the nearest parent that contains `.git`, or the folder itself. The
    /// home folder does not count as a repository, even with `.git`, because it has too many other files. As with git, neither
    /// does a folder on another file system.
    pub fn around(folder: &Path, trust: Trust) -> Self {
        let home = std::env::var_os("HOME").and_then(|home| std::fs::canonicalize(home).ok());
        Self::below(home.as_deref(), folder, trust)
    }

    fn below(home: Option<&Path>, folder: &Path, trust: Trust) -> Self {
        if trust == Trust::Everything {
            return Self { root: None };
        }
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let Ok(real) = std::fs::canonicalize(folder) else { return Self { root: Some(folder.to_owned()) } };
        let system = device(&real);
        let mut above = real.ancestors().take_while(|above| Some(*above) != home && device(above) == system);
        let top = above.find(|above| above.join(".git").exists()).unwrap_or(&real);
        Self { root: Some(top.to_owned()) }
    }

    /// Creates the fence for a stack file that a user named: if it is a link, its target must be in the same repository. A file
    /// outside any repository can be anywhere.
    fn of_stack(given: &Path, file: &Path, trust: Trust) -> Self {
        let folder = file.parent().unwrap_or(Path::new(""));
        let written = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        // Of the path as it is written: a folder that is a link belongs to the repository of the link.
        let is_link = |path: &&Path| std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        let links = written.ancestors().skip(1).filter(is_link);
        let fences = links.filter_map(|link| Some(Self::around(link.parent()?, trust)));
        match fences.filter(Self::is_repository).last() {
            Some(fence) => fence,
            None => {
                let fence = Self::around(folder, trust);
                if given.is_dir() || fence.is_repository() { fence } else { Self { root: None } }
            }
        }
    }

    fn is_repository(&self) -> bool {
        self.root.as_ref().is_some_and(|root| root.join(".git").exists())
    }

    /// Returns true if the target of a path, after resolving links, is inside the fence and not below `.git`.
    pub fn holds(&self, path: &Path) -> bool {
        let Some(root) = &self.root else { return true };
        std::fs::canonicalize(path).is_ok_and(|real| real.starts_with(root) && !is_git(&real, root))
    }

    /// Returns the folder of the stack file, if it was read from disk.
    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// Returns the content of a regular file inside the fence.
    ///
    /// # Errors
    /// Why it is not read.
    pub fn read(&self, path: &Path) -> Result<Vec<u8>, Unread> {
        let real = std::fs::canonicalize(path).map_err(Unread::Io)?;
        self.allows(&real)?;
        let about = std::fs::metadata(&real).map_err(Unread::Io)?;
        if about.is_dir() {
            return Err(Unread::Io(ErrorKind::IsADirectory.into()));
        }
        // To open a pipe is to wait for somebody who writes into it.
        if !about.is_file() {
            return Err(Unread::Special);
        }
        let mut bytes = Vec::new();
        let file = File::open(&real).map_err(Unread::Io)?;
        file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(Unread::Io)?;
        if bytes.len() as u64 > LARGEST { Err(Unread::Large) } else { Ok(bytes) }
    }

    /// Returns a file, or all files below a folder, sorted by path. Links are followed inside the fence. Of a folder, what `.gitignore`
    /// leaves out is not copied, nor are the paths of `left_out`.
    pub(super) fn copies(&self, path: &Path, left_out: &[PathBuf]) -> Copies {
        let mut copies = Copies { left_out: left_out.to_vec(), ..Copies::default() };
        if let (Some(root), Ok(real)) = (&self.root, std::fs::canonicalize(path)) {
            let mut around: Vec<&Path> =
                real.ancestors().skip(1).take_while(|above| above.starts_with(root)).collect();
            around.reverse();
            for above in around {
                copies.enter(above);
            }
        }
        self.copy(path, String::new(), &mut Vec::new(), &mut copies);
        copies.files.sort_by(|one, other| one.path.cmp(&other.path));
        copies
    }

    /// Copies what is at `path` to `to`; `above` has the folders around it.
    fn copy(&self, path: &Path, to: String, above: &mut Vec<PathBuf>, copies: &mut Copies) {
        // What has been read is refused as a whole.
        if copies.size > LARGEST {
            return;
        }
        match self.content(path, &to, above, copies) {
            Ok(Some(file)) => {
                copies.size += file.bytes.len() as u64;
                if copies.size > LARGEST {
                    copies.unread.push((path.to_owned(), Unread::Large));
                }
                copies.files.push(file);
            }
            Ok(None) => {}
            Err(unread) => copies.unread.push((path.to_owned(), unread)),
        }
    }

    /// Returns the content of a file; copies what is in a folder.
    fn content(
        &self,
        path: &Path,
        to: &str,
        above: &mut Vec<PathBuf>,
        copies: &mut Copies,
    ) -> Result<Option<Copied>, Unread> {
        let real = std::fs::canonicalize(path).map_err(Unread::Io)?;
        let about = std::fs::metadata(&real).map_err(Unread::Io)?;
        if !above.is_empty() && copies.left_out.contains(&real) {
            return Ok(None);
        }
        if !about.is_dir() {
            let bytes = self.read(path)?;
            let executable = about.permissions().mode() & 0o100 != 0 && is_program(&bytes);
            return Ok(Some(Copied { path: to.to_owned(), executable, bytes }));
        }
        // A virtual environment of Python, whatever its name.
        if !above.is_empty() && real.join("pyvenv.cfg").is_file() {
            return Ok(None);
        }
        self.allows(&real)?;
        if above.contains(&real) {
            return Err(Unread::Cycle);
        }
        let entries = std::fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let mut entries = entries.map_err(Unread::Io)?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        let around = copies.enter(&real);
        let kept = |copies: &Copies, entry: &std::fs::DirEntry| {
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            !is_left_out(&entry.file_name()) && !copies.is_ignored(&real.join(entry.file_name()), is_dir)
        };
        entries.retain(|entry| kept(copies, entry));
        above.push(real);
        for entry in &entries {
            let name = entry.file_name();
            match name.to_str() {
                Some(name) if to.is_empty() => self.copy(&entry.path(), name.to_owned(), above, copies),
                Some(name) => self.copy(&entry.path(), format!("{to}/{name}"), above, copies),
                None => copies.unread.push((entry.path(), Unread::Name)),
            }
        }
        above.pop();
        copies.ignored.truncate(around);
        Ok(None)
    }

    /// Refuses a target, after resolving links, that is outside the fence or below `.git`.
    fn allows(&self, real: &Path) -> Result<(), Unread> {
        let Some(root) = &self.root else { return Ok(()) };
        if !real.starts_with(root) {
            return Err(Unread::Outside(root.clone()));
        }
        if is_git(real, root) { Err(Unread::Git) } else { Ok(()) }
    }

    /// Returns a link below a folder that leads out of the fence, if there is one.
    pub fn leak(&self, folder: &Path) -> Option<PathBuf> {
        self.root.as_ref()?;
        let mut open = vec![folder.to_owned()];
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                match entry.file_type() {
                    Ok(kind) if kind.is_symlink() && path.exists() && !self.holds(&path) => {
                        return Some(path);
                    }
                    Ok(kind) if kind.is_dir() => open.push(path),
                    Ok(_) | Err(_) => {}
                }
            }
        }
        None
    }
}

/// Returns the canonical path of the folder in which this machine keeps the state of hosts, if it has one: `~/.local/state/dask-infra`.
pub(super) fn state_folder(env: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let given = env("XDG_STATE_HOME").filter(|path| Path::new(path).is_absolute()).map(PathBuf::from);
    let above = given.or_else(|| Some(Path::new(&env("HOME")?).join(".local/state")))?;
    std::fs::canonicalize(above.join("dask-infra")).ok()
}

/// Returns the file system of a path.
fn device(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|about| std::os::unix::fs::MetadataExt::dev(&about))
}

/// Returns true for a path of git's own files in a repository: configuration, hooks, tokens of a checkout.
fn is_git(real: &Path, root: &Path) -> bool {
    real.strip_prefix(root).is_ok_and(|inside| inside.iter().any(|part| part == ".git"))
}

impl Unread {
    /// Returns the diagnostic for it; `None` if the system's error is enough.
    pub fn told(&self, shown: &str) -> Option<Diagnostic> {
        let (code, what, help) = match self {
            Self::Outside(root) => return Some(outside(shown, root)),
            Self::Git => (
                Code::NotTrusted,
                format!("`{shown}` is below `.git`, which may hold tokens"),
                "name a file of the repository".to_owned(),
            ),
            Self::Special => (
                Code::FileNotRead,
                format!("`{shown}` is not a regular file"),
                "name a regular file; pipes and devices are not read".to_owned(),
            ),
            Self::Large => (
                Code::FileNotRead,
                format!("`{shown}` is larger than {} MiB", LARGEST / 1024 / 1024),
                "name another file, or split it".to_owned(),
            ),
            Self::Cycle => (
                Code::FileNotRead,
                format!("`{shown}` is a link to a folder that it is in"),
                "remove the link, or name the folders that you need".to_owned(),
            ),
            Self::Name => (
                Code::FileNotRead,
                format!("the name of `{shown}` is not UTF-8 text"),
                "rename it".to_owned(),
            ),
            Self::Io(_) => return None,
        };
        Some(Diagnostic::error(code, what).help(help))
    }
}

/// Returns the diagnostic for a path outside of the stack's repository.
pub fn outside(shown: &str, root: &Path) -> Diagnostic {
    let what = format!("`{shown}` is outside the stack's repository, {}", root.display());
    Diagnostic::error(Code::NotTrusted, what).help(
        "copy it into the repository; or, if you trust the author of this stack, give `--trust-stack` \
         (DASK_INFRA_TRUST_STACK=1)",
    )
}

/// Returns the content of a stack file, which a user named directly or by its folder. A file that is named directly and is
/// outside any repository may be a pipe.
///
/// # Errors
/// Why it is not read.
pub(super) fn whole(given: &Path, file: &Path, trust: Trust) -> Result<Vec<u8>, Unread> {
    let fence = Fence::of_stack(given, file, trust);
    match fence.root {
        Some(_) => fence.read(file),
        None => std::fs::read(file).map_err(Unread::Io),
    }
}

/// Returns true if a path is a folder, which stands for the `stack.toml` in it.
pub(super) fn is_folder(path: &Path) -> bool {
    path.is_dir()
}

/// Returns the canonical path of a file, so that two paths to the same file are recognized.
pub(super) fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Kinds of targets of a path to a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chart {
    /// A chart's folder.
    Folder,
    /// A file.
    Archive,
    /// A folder without `Chart.yaml`.
    Other,
    /// Nothing.
    Nothing,
}

impl Chart {
    /// Returns what a path leads to.
    pub(super) fn at(path: &Path) -> Self {
        if path.join("Chart.yaml").is_file() {
            Self::Folder
        } else if path.is_dir() {
            Self::Other
        } else if path.is_file() {
            Self::Archive
        } else {
            Self::Nothing
        }
    }
}

/// Returns the content of `Chart.yaml` in the folder of a chart without links that lead out.
pub(super) fn about_chart(chart: &Path) -> String {
    std::fs::read_to_string(chart.join("Chart.yaml")).unwrap_or_default()
}

/// Returns names and texts of the templates of a chart without links that lead out, and of its subcharts.
pub(super) fn templates(chart: &Path) -> Vec<(String, String)> {
    let mut open = vec![chart.join("templates"), chart.join("charts")];
    let mut found = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "yaml" || end == "tpl" || end == "yml") {
                let name = path.strip_prefix(chart).unwrap_or(&path).display().to_string();
                found.push((name, std::fs::read_to_string(&path).unwrap_or_default()));
            }
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_the_repository_are_read() {
        let top = tempfile::tempdir().unwrap();
        let repository = top.path().join("repository");
        let stack = repository.join("infra/stack");
        std::fs::create_dir_all(&stack).unwrap();
        std::fs::create_dir(repository.join(".git")).unwrap();
        let write = |path: &Path, text: &str| std::fs::write(path, text).unwrap();
        write(&top.path().join("secret"), "outside");
        write(&repository.join("base"), "inside");
        write(&stack.join("here"), "inside");
        let large = File::create(stack.join("large")).unwrap();
        large.set_len(LARGEST + 1).unwrap();
        let rows: &[(&str, &str)] = &[
            ("here", "inside"),
            ("../../base", "inside"),
            ("../../../secret", "outside"),
            ("large", "large"),
            ("nowhere", "io"),
            (".", "io"),
        ];
        let fence = Fence::around(&stack, Trust::Repository);
        let read = |fence: &Fence, name: &str| match fence.read(&stack.join(name)) {
            Ok(_) => "inside",
            Err(Unread::Outside(_)) => "outside",
            Err(Unread::Large) => "large",
            Err(Unread::Special | Unread::Git | Unread::Cycle | Unread::Name) => "special",
            Err(Unread::Io(_)) => "io",
        };
        for (name, wanted) in rows {
            assert_eq!(read(&fence, name), *wanted, "{name}");
        }
        let trusting = Fence::around(&stack, Trust::Everything);
        assert_eq!(read(&trusting, "../../../secret"), "inside");
        // Git's own files, which have tokens of checkouts, are no files of the repository.
        write(&repository.join(".git/config"), "token");
        assert!(matches!(fence.read(&stack.join("../../.git/config")), Err(Unread::Git)));
        assert!(!fence.holds(&repository.join(".git/config")));
        // A home with `.git` is no repository.
        let home = std::fs::canonicalize(&repository).unwrap();
        assert_eq!(read(&Fence::below(Some(&home), &stack, Trust::Repository), "../../base"), "outside");
        // Without a repository the folder is the fence.
        std::fs::remove_dir_all(repository.join(".git")).unwrap();
        assert_eq!(read(&Fence::around(&stack, Trust::Repository), "../../base"), "outside");
    }

    #[test]
    fn the_file_of_a_stack_is_no_way_out_of_its_repository() {
        use std::os::unix::fs::symlink;
        let top = tempfile::tempdir().unwrap();
        let at = |path: &str| top.path().join(path);
        for folder in ["repository/.git", "repository/infra", "repository/real", "elsewhere", "plain"] {
            std::fs::create_dir_all(at(folder)).unwrap();
        }
        for file in ["elsewhere/stack.toml", "repository/real/stack.toml", "plain/real.toml"] {
            std::fs::write(at(file), "text").unwrap();
        }
        symlink(at("elsewhere/stack.toml"), at("repository/infra/stack.toml")).unwrap();
        symlink(at("elsewhere"), at("repository/folder")).unwrap();
        symlink(at("repository/real"), at("repository/inside")).unwrap();
        symlink("/proc/self/environ", at("repository/environ.toml")).unwrap();
        symlink(at("repository/real"), at("link")).unwrap();
        symlink(at("plain/real.toml"), at("plain/stack.toml")).unwrap();
        symlink(at("elsewhere/stack.toml"), at("plain/named.toml")).unwrap();
        for (given, file, read) in [
            ("repository/infra", "repository/infra/stack.toml", false),
            ("repository/infra/stack.toml", "repository/infra/stack.toml", false),
            ("repository/folder", "repository/folder/stack.toml", false),
            ("repository/environ.toml", "repository/environ.toml", false),
            ("repository/inside", "repository/inside/stack.toml", true),
            ("repository/real", "repository/real/stack.toml", true),
            ("link", "link/stack.toml", true),
            ("plain", "plain/stack.toml", true),
            ("plain/named.toml", "plain/named.toml", true),
        ] {
            let found = whole(&at(given), &at(file), Trust::Repository);
            assert_eq!(found.is_ok(), read, "{given}: {found:?}");
            assert!(whole(&at(given), &at(file), Trust::Everything).is_ok(), "{given}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_lead_nowhere() {
        use std::os::unix::fs::symlink;
        let (top, outside) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
        let chart = top.path().join("chart");
        std::fs::create_dir(&chart).unwrap();
        symlink(outside.path(), chart.join("link")).unwrap();
        symlink("/dev/zero", top.path().join("zero")).unwrap();
        let fence = Fence::around(top.path(), Trust::Repository);
        assert!(matches!(fence.read(&chart.join("link")), Err(Unread::Outside(_))));
        assert_eq!(fence.leak(top.path()).map(|path| path.exists()), Some(true));
        assert_eq!(fence.leak(&chart), Some(chart.join("link")));
        let trusting = Fence::around(top.path(), Trust::Everything);
        assert!(matches!(trusting.read(&top.path().join("zero")), Err(Unread::Special)));
        assert_eq!(trusting.leak(&chart), None);
        let made = std::process::Command::new("mkfifo").arg(top.path().join("pipe")).status();
        if made.is_ok_and(|status| status.success()) {
            assert!(matches!(fence.read(&top.path().join("pipe")), Err(Unread::Special)));
        }
    }
}
