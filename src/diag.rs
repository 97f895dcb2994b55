//! What there is to tell the user.
