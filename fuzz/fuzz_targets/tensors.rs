//! Any bytes are an array, an archive, a tensor, a picture, or an error with a message. The first byte chooses the format.
#![no_main]

use barewave::tensor::{DType, ImageOptions, InputSpec, Npz, parse_image, parse_npy, parse_pb};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    let Some((&format, data)) = data.split_first() else { return };
    let path = Path::new("/nonexistent/x");
    match format % 5 {
        0 => drop(parse_npy(data)),
        1 => {
            let Ok(mut file) = Npz::from_bytes(data, path, None) else { return };
            for name in file.names() {
                let _ = file.array(&name);
            }
        }
        2 => drop(parse_pb(data.to_vec().into(), path)),
        3 => {
            for shape in [[1, 3, 5, 7], [1, 7, 5, 1]] {
                let _ = parse_image(data, path, DType::F32, &shape, &ImageOptions::default());
            }
        }
        _ => drop(std::str::from_utf8(data).map(str::parse::<InputSpec>)),
    }
});
