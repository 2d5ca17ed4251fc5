//! Images in and out.
//!
//! An image becomes a tensor in four steps: decode, convert to the colour the model wants, bring to its size, and
//! normalise each channel as `(pixel / 255 - mean) / std`. What the model wants comes from the shape of its input, from the
//! command line, or from its own metadata:
//!
//! | key            | value                                        | default              |
//! |----------------|----------------------------------------------|----------------------|
//! | `image.color`  | `gray`, `rgb` or `bgr`                       | by channels          |
//! | `image.mean`   | one number, or one per channel, in 0..1      | 0                    |
//! | `image.std`    | one number, or one per channel, in 0..1      | 1                    |
//! | `image.layout` | `NCHW` or `NHWC`                             | by the input's shape |
//! | `image.resize` | `stretch`, `crop` (short side, centre) or `fit` (long side, black borders) | `stretch` |
//! | `labels`       | names of the classes, separated by commas or lines | none           |

use super::{DType, Error, HostTensor};
use image::imageops::{FilterType, crop_imm, replace, resize};
use image::{DynamicImage, RgbImage};
use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;

/// Order of the dimensions of an image tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Channels before rows.
    Nchw,
    /// Channels last.
    Nhwc,
}

/// Channels of an image tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// One channel.
    Gray,
    /// Red, green, blue.
    Rgb,
    /// Blue, green, red.
    Bgr,
}

/// How an image is brought to the model's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resize {
    /// Both sides independently.
    Stretch,
    /// The short side to its extent, then the centre is cut out.
    Crop,
    /// The long side to its extent, with black borders.
    Fit,
}

impl FromStr for Layout {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        match s.to_ascii_uppercase().as_str() {
            "NCHW" | "CHW" => Ok(Layout::Nchw),
            "NHWC" | "HWC" => Ok(Layout::Nhwc),
            _ => Err(format!("unknown image layout `{s}`; NCHW and NHWC are known")),
        }
    }
}

impl FromStr for Color {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        match s.to_ascii_lowercase().as_str() {
            "gray" | "grey" => Ok(Color::Gray),
            "rgb" => Ok(Color::Rgb),
            "bgr" => Ok(Color::Bgr),
            _ => Err(format!("unknown image colour `{s}`; gray, rgb and bgr are known")),
        }
    }
}

impl FromStr for Resize {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        match s.to_ascii_lowercase().as_str() {
            "stretch" => Ok(Resize::Stretch),
            "crop" => Ok(Resize::Crop),
            "fit" => Ok(Resize::Fit),
            _ => Err(format!("unknown way to resize `{s}`; stretch, crop and fit are known")),
        }
    }
}

/// How images become tensors. What is `None` follows from the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageOptions {
    /// Subtracted from each channel (or all), in units of full scale.
    pub mean: Option<Vec<f32>>,
    /// Divides each channel (or all), in units of full scale.
    pub std: Option<Vec<f32>>,
    /// Order of dimensions.
    pub layout: Option<Layout>,
    /// Channels.
    pub color: Option<Color>,
    /// How to reach the model's size.
    pub resize: Option<Resize>,
}

/// Numbers separated by commas.
fn numbers(text: &str) -> Result<Vec<f32>, String> {
    text.split(',').map(|s| s.trim().parse().map_err(|_| format!("`{text}` is not a list of numbers"))).collect()
}

impl ImageOptions {
    /// What the metadata of a model says.
    pub fn from_metadata(metadata: &BTreeMap<String, String>) -> Result<ImageOptions, Error> {
        let get = |key: &str| metadata.get(key).map(String::as_str);
        let wrong = |key: &str| {
            let key = key.to_string();
            move |e: String| Error::other(format!("the model's metadata `{key}`: {e}"))
        };
        Ok(ImageOptions {
            mean: get("image.mean").map(numbers).transpose().map_err(wrong("image.mean"))?,
            std: get("image.std").map(numbers).transpose().map_err(wrong("image.std"))?,
            layout: get("image.layout").map(str::parse).transpose().map_err(wrong("image.layout"))?,
            color: get("image.color").map(str::parse).transpose().map_err(wrong("image.color"))?,
            resize: get("image.resize").map(str::parse).transpose().map_err(wrong("image.resize"))?,
        })
    }

    /// These options, with what they leave open taken from `other`.
    pub fn or(self, other: ImageOptions) -> ImageOptions {
        ImageOptions {
            mean: self.mean.or(other.mean),
            std: self.std.or(other.std),
            layout: self.layout.or(other.layout),
            color: self.color.or(other.color),
            resize: self.resize.or(other.resize),
        }
    }
}

struct Frame {
    layout: Layout,
    channels: usize,
    height: usize,
    width: usize,
}

/// What a tensor shape means as an image.
fn frame(shape: &[usize], layout: Option<Layout>) -> Result<Frame, String> {
    let dims = match shape {
        [1, d @ ..] if d.len() == 3 => d,
        d if d.len() == 3 => d,
        _ => return Err(format!("shape {shape:?} is not that of one image ([1, channels, height, width])")),
    };
    let is_color = |c: usize| c == 1 || c == 3;
    let layout = match layout {
        Some(l) => l,
        None if is_color(dims[0]) => Layout::Nchw,
        None => Layout::Nhwc,
    };
    let [channels, height, width] = match layout {
        Layout::Nchw => [dims[0], dims[1], dims[2]],
        Layout::Nhwc => [dims[2], dims[0], dims[1]],
    };
    if !is_color(channels) || height == 0 || width == 0 {
        return Err(format!("shape {shape:?} is not that of one image with 1 or 3 channels"));
    }
    Ok(Frame { layout, channels, height, width })
}

fn bring_to_size(image: &RgbImage, width: u32, height: u32, how: Resize) -> RgbImage {
    if image.dimensions() == (width, height) {
        return image.clone();
    }
    let (w, h) = (image.width().max(1) as f64, image.height().max(1) as f64);
    let (sx, sy) = (width as f64 / w, height as f64 / h);
    let scaled = |s: f64| {
        let side = |v: f64, limit: u32| ((v * s).round() as u32).clamp(1, limit);
        (side(w, 1 << 16), side(h, 1 << 16))
    };
    match how {
        Resize::Stretch => resize(image, width, height, FilterType::Triangle),
        Resize::Crop => {
            let (w, h) = scaled(sx.max(sy));
            let (w, h) = (w.max(width), h.max(height));
            let large = resize(image, w, h, FilterType::Triangle);
            crop_imm(&large, (w - width) / 2, (h - height) / 2, width, height).to_image()
        }
        Resize::Fit => {
            let (w, h) = scaled(sx.min(sy));
            let (w, h) = (w.min(width), h.min(height));
            let small = resize(image, w, h, FilterType::Triangle);
            let mut out = RgbImage::new(width, height);
            replace(&mut out, &small, ((width - w) / 2) as i64, ((height - h) / 2) as i64);
            out
        }
    }
}

/// Reads a PNG or JPEG file as a tensor of this type and shape. `u8` tensors get the pixels as they are.
pub fn load_image(path: &Path, dtype: DType, shape: &[usize], options: &ImageOptions) -> Result<HostTensor, Error> {
    let f = frame(shape, options.layout).map_err(|e| Error::file(path, format!("the model's input of {e}")))?;
    let bytes = std::fs::read(path).map_err(|e| Error::io("read", path, &e))?;
    let decoded = image::load_from_memory(&bytes)
        .map_err(|e| Error::file(path, format!("not a readable image ({e}); PNG and JPEG are supported")))?;
    let color = match (options.color, f.channels) {
        (Some(Color::Gray), 3) | (Some(Color::Rgb | Color::Bgr), 1) => {
            return Err(Error::file(
                path,
                format!("the chosen colour does not have the {} channels of {shape:?}", f.channels),
            ));
        }
        (Some(c), _) => c,
        (None, 1) => Color::Gray,
        (None, _) => Color::Rgb,
    };
    let rgb = match color {
        Color::Gray => DynamicImage::ImageLuma8(decoded.to_luma8()).to_rgb8(),
        _ => decoded.to_rgb8(),
    };
    let how = options.resize.unwrap_or(Resize::Stretch);
    let image = bring_to_size(&rgb, f.width as u32, f.height as u32, how);
    let pick = |list: &Option<Vec<f32>>, default: f32, c: usize, what: &str| match list.as_deref() {
        None => Ok(default),
        Some([one]) => Ok(*one),
        Some(l) if l.len() == f.channels => Ok(l[c]),
        Some(l) => Err(Error::file(path, format!("{} values of {what} for {} channels", l.len(), f.channels))),
    };
    let mut values = vec![0.0; f.channels * f.height * f.width];
    for c in 0..f.channels {
        let (mean, std) = (pick(&options.mean, 0.0, c, "mean")?, pick(&options.std, 1.0, c, "std")?);
        if std == 0.0 {
            return Err(Error::file(path, "a std of 0 divides by zero"));
        }
        let source = if color == Color::Bgr { 2 - c } else { c };
        for (x, y, p) in image.enumerate_pixels() {
            let (x, y) = (x as usize, y as usize);
            let at = match f.layout {
                Layout::Nchw => (c * f.height + y) * f.width + x,
                Layout::Nhwc => (y * f.width + x) * f.channels + c,
            };
            let raw = p.0[source] as f64;
            values[at] = if dtype == DType::U8 { raw } else { (raw / 255.0 - mean as f64) / std as f64 };
        }
    }
    Ok(HostTensor::from_f64(dtype, shape, &values))
}

/// Writes a tensor of one image as PNG. Float values of 0..1 become 0..255 after undoing the normalisation of `options`;
/// `u8` values are written as they are.
pub fn save_image(path: &Path, tensor: &HostTensor, options: &ImageOptions) -> Result<(), Error> {
    let f = frame(tensor.shape(), options.layout).map_err(|e| Error::file(path, e))?;
    let values = tensor.to_f64();
    let pick = |list: &Option<Vec<f32>>, default: f32, c: usize| match list.as_deref() {
        Some([one]) => *one,
        Some(l) => l.get(c).copied().unwrap_or(default),
        None => default,
    };
    let image = RgbImage::from_fn(f.width as u32, f.height as u32, |x, y| {
        let (x, y) = (x as usize, y as usize);
        image::Rgb([0, 1, 2].map(|c| {
            let c = if options.color == Some(Color::Bgr) { 2 - c } else { c };
            let c = if f.channels == 1 { 0 } else { c };
            let at = match f.layout {
                Layout::Nchw => (c * f.height + y) * f.width + x,
                Layout::Nhwc => (y * f.width + x) * f.channels + c,
            };
            let v = if tensor.dtype() == DType::U8 {
                values[at]
            } else {
                (values[at] * pick(&options.std, 1.0, c) as f64 + pick(&options.mean, 0.0, c) as f64) * 255.0
            };
            v.round().clamp(0.0, 255.0) as u8
        }))
    });
    let image = if f.channels == 1 {
        DynamicImage::ImageLuma8(DynamicImage::ImageRgb8(image).to_luma8())
    } else {
        DynamicImage::ImageRgb8(image)
    };
    let mut bytes = Vec::new();
    image
        .write_to(&mut std::io::Cursor::new(&mut bytes), image::ImageFormat::Png)
        .map_err(|e| Error::file(path, format!("cannot make a PNG: {e}")))?;
    std::fs::write(path, bytes).map_err(|e| Error::io("write", path, &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temp(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("barewave-{}-{name}", std::process::id()))
    }

    #[test]
    fn written_images_read_back_in_every_layout() {
        let path = temp("rgb.png");
        let values: Vec<f64> = (0..3 * 4 * 5).map(|i| i as f64 * 4.0 / 255.0).collect();
        let t = HostTensor::from_f64(DType::F32, &[1, 3, 4, 5], &values);
        let options = ImageOptions { mean: Some(vec![0.5, 0.4, 0.3]), std: Some(vec![0.2]), ..Default::default() };
        save_image(&path, &t, &ImageOptions::default()).unwrap();
        let back = load_image(&path, DType::F32, &[1, 3, 4, 5], &ImageOptions::default()).unwrap();
        assert!(back.to_f64().iter().zip(&values).all(|(a, b)| (a - b).abs() < 1e-6));
        let last = load_image(&path, DType::U8, &[1, 4, 5, 3], &ImageOptions::default()).unwrap();
        assert_eq!(last.to_i64()[..3], [0, 80, 160]);
        let bgr = ImageOptions { color: Some(Color::Bgr), ..Default::default() };
        assert_eq!(load_image(&path, DType::U8, &[1, 4, 5, 3], &bgr).unwrap().to_i64()[..3], [160, 80, 0]);
        let scaled = load_image(&path, DType::F32, &[1, 3, 4, 5], &options).unwrap().to_f64();
        assert!((scaled[0] + 0.5 / 0.2).abs() < 1e-6 && (scaled[59] - (236.0 / 255.0 - 0.3) / 0.2).abs() < 1e-5);
        save_image(&path, &HostTensor::from_f64(DType::F32, &[1, 3, 4, 5], &scaled), &options).unwrap();
        let again = load_image(&path, DType::F32, &[1, 3, 4, 5], &ImageOptions::default()).unwrap();
        assert_eq!(again, back);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn sizes_are_reached_in_three_ways() {
        // A white image twice as wide as high.
        let image = RgbImage::from_pixel(8, 4, image::Rgb([255, 255, 255]));
        for how in [Resize::Stretch, Resize::Crop, Resize::Fit] {
            let out = bring_to_size(&image, 6, 6, how);
            assert_eq!(out.dimensions(), (6, 6));
            let black = out.pixels().filter(|p| p.0 == [0, 0, 0]).count();
            assert_eq!(black, if how == Resize::Fit { 18 } else { 0 }, "{how:?}");
        }
    }

    #[test]
    fn wrong_files_and_shapes_are_explained() {
        let path = temp("bad.png");
        std::fs::write(&path, b"\x89PNG\r\n\x1a\nbroken").unwrap();
        let load =
            |shape: &[usize]| load_image(&path, DType::F32, shape, &ImageOptions::default()).unwrap_err().to_string();
        assert!(load(&[1, 3, 4, 4]).contains("not a readable image"));
        assert!(load(&[1, 10]).contains("not that of one image"));
        assert!(load(&[1, 7, 4, 5]).contains("1 or 3 channels"));
        std::fs::remove_file(&path).unwrap();
        assert!(load(&[1, 3, 4, 4]).contains("cannot read"));
        let metadata = BTreeMap::from([("image.mean".to_string(), "a,b".to_string())]);
        assert!(ImageOptions::from_metadata(&metadata).unwrap_err().to_string().contains("image.mean"));
    }
}
