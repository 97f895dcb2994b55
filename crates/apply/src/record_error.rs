//! Errors of writing the outcome of an apply to the record.

use crate::lock::{LockError, RecordWriteError};
use live::ApiError;

/// Errors of writing the outcome to the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// The lock is lost; to whom.
    LockLost(String),
    /// Another error, as a text for the user.
    Failed(String),
}

impl std::fmt::Display for RecordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::LockLost(who) => write!(f, "{who} took the stack's lock"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

impl From<RecordWriteError> for RecordError {
    fn from(why: RecordWriteError) -> Self {
        match why {
            RecordWriteError::LockLost(who) => Self::LockLost(who),
            RecordWriteError::Failed(error) => error.into(),
        }
    }
}

impl From<ApiError> for RecordError {
    fn from(error: ApiError) -> Self {
        Self::Failed(error.with_remedy())
    }
}

impl From<LockError> for RecordError {
    fn from(why: LockError) -> Self {
        match why {
            LockError::HeldByOther(who) => Self::LockLost(who),
            LockError::Failed(why) => Self::Failed(why),
        }
    }
}
