//! Instructions to bytes and back.

pub(crate) mod decode;
pub(crate) mod encoder;
pub(crate) mod image;
