//! Tensors in host memory, and the files they come from and go to.

mod compare;
mod dtype;
mod error;
mod host;
mod image;
mod npy;
pub(crate) mod pb;
mod random;
mod resample;
mod scaled;
pub mod small;
mod spec;
mod view;
mod words;

pub(crate) use crate::mapped::Room;
pub use compare::{Comparison, compare, format_top, top_k};
pub use dtype::DType;
pub use error::{Error, Problem};
pub use host::{HostTensor, Identity, SizeMismatch, element_count, fill};
pub(crate) use image::decode_image;
pub use image::{Color, ImageOptions, Layout, Resize, load_image, parse_image};
pub use npy::{Npz, load_npy, load_npz, parse_npy};
pub use pb::{load_pb, load_pb_list, packed, parse_pb, to_pb, unpacked};
pub use random::SplitMix64;
pub use spec::{InputSpec, Source, Wanted, check_save, kind_of, listed, save};
pub use view::{AsTensor, TensorView, TensorViewMut};
pub use words::{Words, code_of};
