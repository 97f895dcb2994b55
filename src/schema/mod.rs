//! Reader of schemas/.
