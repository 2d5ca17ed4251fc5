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

use super::resample::along_axis;
use super::{DType, Error, HostTensor, Problem};
use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageDecoder, ImageEncoder, ImageFormat, ImageReader};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;
use std::str::FromStr;

/// What is read, beside JPEG 2000.
const FORMATS: [ImageFormat; 6] =
    [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Bmp, ImageFormat::Pnm, ImageFormat::Tiff, ImageFormat::WebP];

/// What a file in JPEG 2000 begins with: the box of its container, or the stream itself.
const JPEG_2000: [&[u8]; 2] = [b"\0\0\0\x0cjP  ", b"\xff\x4f\xff\x51"];

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
    type Err = Problem;
    fn from_str(s: &str) -> Result<Self, Problem> {
        match s.to_ascii_uppercase().as_str() {
            "NCHW" | "CHW" => Ok(Layout::Nchw),
            "NHWC" | "HWC" => Ok(Layout::Nhwc),
            _ => Err(Problem::Word(format!("unknown image layout `{s}`; NCHW and NHWC are known"))),
        }
    }
}

impl FromStr for Color {
    type Err = Problem;
    fn from_str(s: &str) -> Result<Self, Problem> {
        match s.to_ascii_lowercase().as_str() {
            "gray" | "grey" => Ok(Color::Gray),
            "rgb" => Ok(Color::Rgb),
            "bgr" => Ok(Color::Bgr),
            _ => Err(Problem::Word(format!("unknown image colour `{s}`; gray, rgb and bgr are known"))),
        }
    }
}

impl FromStr for Resize {
    type Err = Problem;
    fn from_str(s: &str) -> Result<Self, Problem> {
        match s.to_ascii_lowercase().as_str() {
            "stretch" => Ok(Resize::Stretch),
            "crop" => Ok(Resize::Crop),
            "fit" => Ok(Resize::Fit),
            _ => Err(Problem::Word(format!("unknown way to resize `{s}`; stretch, crop and fit are known"))),
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
fn numbers(text: &str) -> Result<Vec<f32>, Problem> {
    let wrong = || Problem::Word(format!("`{text}` is not a list of finite numbers"));
    text.split(',').map(|s| s.trim().parse().ok().filter(|v: &f32| v.is_finite()).ok_or_else(wrong)).collect()
}

impl ImageOptions {
    /// What the metadata of a model says.
    pub fn from_metadata(metadata: &BTreeMap<String, String>) -> Result<ImageOptions, Error> {
        let get = |key: &str| metadata.get(key).map(String::as_str);
        let wrong = |key: &str| {
            let key = key.to_string();
            move |e: Problem| Error::other(format!("the model's metadata `{key}`: {e}"))
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
fn frame(shape: &[usize], layout: Option<Layout>) -> Result<Frame, Problem> {
    let dims = match shape {
        [1, d @ ..] if d.len() == 3 => d,
        d if d.len() == 3 => d,
        _ => {
            return Err(Problem::Shape(format!(
                "shape {shape:?} is not that of one image ([1, channels, height, width])"
            )));
        }
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
        return Err(Problem::Shape(format!("shape {shape:?} is not that of one image with 1 or 3 channels")));
    }
    Ok(Frame { layout, channels, height, width })
}

/// Decoded pixels: interleaved, 1 or 3 channels.
#[derive(Clone, Debug, PartialEq)]
struct Pixels {
    width: usize,
    height: usize,
    channels: usize,
    data: Vec<u8>,
}

/// Decoders refuse images with more pixels than this.
const MAX_PIXELS: usize = 1 << 28;

/// How many of each format fit into a byte at most: what claims to hold more is damaged, and is not made room for. Deflate
/// packs at most 1032 bytes into one; a block of 64 pixels of a JPEG takes a bit at least, a run of a BMP two bytes. A WebP of one
/// colour has no bits for its pixels: it may be large up to [`MOST_FOR_NOTHING`].
fn fits(format: ImageFormat, width: u32, height: u32, bits_per_pixel: u16, packed: usize) -> bool {
    let (width, height, packed) = (u64::from(width), u64::from(height), packed as u64);
    match format {
        ImageFormat::Png => (width * u64::from(bits_per_pixel)).div_ceil(8).saturating_mul(height) <= 1040 * packed,
        ImageFormat::WebP if width * height <= MOST_FOR_NOTHING => true,
        _ => width * height <= 1024 * packed,
    }
}

/// Pixels that few bytes may stand for.
const MOST_FOR_NOTHING: u64 = 1 << 22;

/// The chunks of a PNG file that decide its pixels: what else is in it (texts, colour profiles, animations) would be unpacked
/// and put aside, whatever its size. The decoder takes for granted that a palette consists of triples.
fn pixel_chunks(bytes: &[u8]) -> Result<Vec<u8>, Problem> {
    let (signature, mut rest) = bytes.split_at_checked(8).unwrap_or((bytes, &[]));
    let mut out = signature.to_vec();
    while let Some(([a, b, c, d, kind @ ..], _)) = rest.split_first_chunk::<8>() {
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        // Length, kind and checksum are twelve bytes.
        let (chunk, behind) = rest.split_at_checked(length.saturating_add(12)).unwrap_or((rest, &[]));
        if kind == b"PLTE" && !length.is_multiple_of(3) {
            return Err(Problem::Damaged("its palette does not consist of colours".into()));
        }
        // An upper-case letter begins the name of what no reader may leave out.
        if kind[0].is_ascii_uppercase() || kind == b"tRNS" {
            out.extend_from_slice(chunk);
        }
        rest = behind;
    }
    Ok(out)
}

/// Tiles of a JPEG 2000 stream, each of which takes bytes of its own: area of the grid and extents of a tile follow the
/// markers SOC and SIZ (ITU-T T.800, table A.9).
fn tiles(bytes: &[u8]) -> Option<u64> {
    let at = bytes.windows(4).position(|w| w == JPEG_2000[1])?;
    let word = |i: usize| {
        let four = bytes.get(at + 8 + 4 * i..)?.first_chunk::<4>()?;
        Some(u64::from(u32::from_be_bytes(*four)))
    };
    let across = |axis: usize| Some(word(axis)?.div_ceil(word(axis + 4)?.max(1)));
    Some(across(0)? * across(1)?)
}

/// Refuses what has no pixels, or too many.
fn check_size(width: u32, height: u32) -> Result<(), Problem> {
    let pixels = u64::from(width) * u64::from(height);
    if pixels == 0 || pixels > MAX_PIXELS as u64 {
        return Err(Problem::Unsupported(format!("an image of {width} x {height} pixels is not supported")));
    }
    Ok(())
}

impl Pixels {
    fn decode(bytes: &[u8]) -> Result<Pixels, Problem> {
        let damaged = |e: image::ImageError| Problem::Damaged(e.to_string());
        let format = image::guess_format(bytes).ok().filter(|f| FORMATS.contains(f));
        if JPEG_2000.iter().any(|m| bytes.starts_with(m)) {
            return Pixels::decode_jpeg_2000(bytes);
        }
        let format = format.ok_or_else(|| Problem::Damaged("none of the formats that are read".into()))?;
        let chunks = if format == ImageFormat::Png { pixel_chunks(bytes)? } else { Vec::new() };
        let bytes = if format == ImageFormat::Png { &chunks } else { bytes };
        let reader = ImageReader::with_format(Cursor::new(bytes), format);
        let decoder = reader.into_decoder().map_err(damaged)?;
        let ((width, height), color) = (decoder.dimensions(), decoder.color_type());
        if !fits(format, width, height, decoder.original_color_type().bits_per_pixel(), bytes.len()) {
            return Err(Problem::Damaged(format!(
                "{width} x {height} pixels cannot be in {} bytes; it is truncated or damaged",
                bytes.len()
            )));
        }
        check_size(width, height)?;
        let size = usize::try_from(decoder.total_bytes()).map_err(|_| Problem::Size("it is too large".into()))?;
        let mut data = vec![0; size];
        decoder.read_image(&mut data).map_err(damaged)?;
        // Of samples of 16 bits the upper eight count; alpha is dropped.
        let sample = usize::from(color.bytes_per_pixel() / color.channel_count());
        let channels = usize::from(color.channel_count());
        let kept = if channels < 3 { 1 } else { 3 };
        let upper = |s: &[u8]| match s {
            [a, b] => (u16::from_ne_bytes([*a, *b]) >> 8) as u8,
            s => s[0],
        };
        if sample > 2 {
            return Err(Problem::Unsupported("samples of more than 16 bits are not supported".into()));
        }
        if (sample, channels) != (1, kept) {
            let pixels = data.chunks_exact(sample * channels);
            data = pixels.flat_map(|p| p.chunks_exact(sample).take(kept).map(upper)).collect();
        }
        Ok(Pixels { width: width as usize, height: height as usize, channels: kept, data })
    }

    fn decode_jpeg_2000(bytes: &[u8]) -> Result<Pixels, Problem> {
        let damaged = |e: hayro_jpeg2000::DecodeError| Problem::Damaged(e.to_string());
        let image = hayro_jpeg2000::Image::new(bytes, &hayro_jpeg2000::DecodeSettings::default()).map_err(damaged)?;
        let (width, height) = (image.width(), image.height());
        check_size(width, height)?;
        if tiles(bytes).is_some_and(|n| n > bytes.len() as u64) {
            return Err(Problem::Damaged("it has more tiles than bytes".into()));
        }
        // An empty code block takes no bits: as of a WebP.
        if u64::from(width) * u64::from(height) > MOST_FOR_NOTHING.max(1024 * bytes.len() as u64) {
            return Err(Problem::Damaged(format!("{width} x {height} pixels cannot be in {} bytes", bytes.len())));
        }
        let colors = match image.color_space() {
            hayro_jpeg2000::ColorSpace::Gray => 1,
            hayro_jpeg2000::ColorSpace::RGB => 3,
            other => return Err(Problem::Unsupported(format!("the colours {other:?} are not supported"))),
        };
        let mut context = hayro_jpeg2000::DecoderContext::default();
        let data = image.decode(&mut context).map_err(damaged)?.data_u8();
        let channels = colors + usize::from(image.has_alpha());
        let data = data.chunks_exact(channels).flat_map(|p| p[..colors].iter().copied()).collect();
        Ok(Pixels { width: width as usize, height: height as usize, channels: colors, data })
    }

    /// One channel of brightness (ITU-R 601), or three equal ones.
    fn with_channels(self, channels: usize) -> Pixels {
        let data = match (self.channels, channels) {
            (3, 1) => {
                let luma = |p: &[u8; 3]| {
                    let [r, g, b] = p.map(f32::from);
                    (r * 0.299 + g * 0.587 + b * 0.114).round() as u8
                };
                self.data.as_chunks().0.iter().map(luma).collect()
            }
            (1, 3) => self.data.iter().flat_map(|&v| [v; 3]).collect(),
            _ => self.data,
        };
        Pixels { channels, data, ..self }
    }

    /// By linear interpolation.
    fn resized(&self, width: usize, height: usize) -> Pixels {
        // Rows before columns: each rounds.
        let wide = along_axis(&self.data, self.height, self.width, self.channels, width);
        let data = along_axis(&wide, 1, self.height, width * self.channels, height);
        Pixels { width, height, channels: self.channels, data }
    }

    /// A window of `width` x `height` whose corner is at `x`, `y` of this image; black outside of it.
    fn window(&self, x: i64, y: i64, width: usize, height: usize) -> Pixels {
        let mut data = Vec::with_capacity(width * height * self.channels);
        for row in 0..height as i64 {
            for column in 0..width as i64 {
                let (sx, sy) = (column + x, row + y);
                let inside = (0..self.width as i64).contains(&sx) && (0..self.height as i64).contains(&sy);
                for k in 0..self.channels {
                    let at = || (sy as usize * self.width + sx as usize) * self.channels + k;
                    data.push(if inside { self.data[at()] } else { 0 });
                }
            }
        }
        Pixels { width, height, channels: self.channels, data }
    }

    fn bring_to_size(&self, width: usize, height: usize, how: Resize) -> Pixels {
        let (sx, sy) = (width as f64 / self.width as f64, height as f64 / self.height as f64);
        let s = match how {
            Resize::Stretch => return self.resized(width, height),
            Resize::Crop => sx.max(sy),
            Resize::Fit => sx.min(sy),
        };
        let side = |v: usize| ((v as f64 * s).round() as usize).clamp(1, MAX_PIXELS / width.max(height));
        let (w, h) = (side(self.width), side(self.height));
        let offset = |have: usize, want: usize| (have as i64 - want as i64).div_euclid(2);
        self.resized(w, h).window(offset(w, width), offset(h, height), width, height)
    }
}

/// The pixels of an image file, `[height, width, channels]`, as they are.
pub(crate) fn decode_image(bytes: &[u8], color: Color) -> Result<HostTensor, Problem> {
    let channels = if color == Color::Gray { 1 } else { 3 };
    let Pixels { width, height, mut data, .. } = Pixels::decode(bytes)?.with_channels(channels);
    if color == Color::Bgr {
        data.as_chunks_mut::<3>().0.iter_mut().for_each(|p| p.reverse());
    }
    Ok(HostTensor::new(DType::U8, &[height, width, channels], data)?)
}

/// Reads an image file (PNG, JPEG, JPEG 2000, WebP, TIFF, BMP, PNM) as a tensor of this type and shape. `u8` tensors get the pixels as they are.
pub fn load_image(path: &Path, dtype: DType, shape: &[usize], options: &ImageOptions) -> Result<HostTensor, Error> {
    let bytes = crate::mapped::read_file(path).map_err(|e| Error::io("read", path, &e))?;
    parse_image(&bytes, path, dtype, shape, options)
}

/// As [`load_image`], from the bytes of the file; `path` is for messages.
pub fn parse_image(
    bytes: &[u8],
    path: &Path,
    dtype: DType,
    shape: &[usize],
    options: &ImageOptions,
) -> Result<HostTensor, Error> {
    let f = frame(shape, options.layout).map_err(|e| Error::file(path, format!("the model's input of {e}")))?;
    let decoded = Pixels::decode(bytes).map_err(|e| {
        Error::file(
            path,
            format!("not a readable image ({e}); PNG, JPEG, JPEG 2000, WebP, TIFF, BMP and PNM are supported"),
        )
    })?;
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
    let how = options.resize.unwrap_or(Resize::Stretch);
    let image = decoded.with_channels(f.channels).bring_to_size(f.width, f.height, how);
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
        for i in 0..f.width * f.height {
            let (x, y) = (i % f.width, i / f.width);
            let at = match f.layout {
                Layout::Nchw => (c * f.height + y) * f.width + x,
                Layout::Nhwc => (y * f.width + x) * f.channels + c,
            };
            let raw = f64::from(image.data[i * f.channels + source]);
            values[at] = if dtype == DType::U8 { raw } else { (raw / 255.0 - mean as f64) / std as f64 };
        }
    }
    Ok(HostTensor::from_f64(dtype, shape, &values))
}

/// A tensor of one image as the bytes of a PNG. Float values of 0..1 become 0..255 after undoing the normalisation of `options`;
/// `u8` values are written as they are.
pub(crate) fn png_bytes(tensor: &HostTensor, options: &ImageOptions) -> Result<Vec<u8>, Problem> {
    let f = frame(tensor.shape(), options.layout)?;
    let values = tensor.to_f64();
    let pick = |list: &Option<Vec<f32>>, default: f32, c: usize| match list.as_deref() {
        Some([one]) => *one,
        Some(l) => l.get(c).copied().unwrap_or(default),
        None => default,
    };
    let mut pixels = Vec::with_capacity(f.channels * f.height * f.width);
    for i in 0..f.width * f.height {
        let (x, y) = (i % f.width, i / f.width);
        for k in 0..f.channels {
            let c = if options.color == Some(Color::Bgr) && f.channels == 3 { 2 - k } else { k };
            let at = match f.layout {
                Layout::Nchw => (c * f.height + y) * f.width + x,
                Layout::Nhwc => (y * f.width + x) * f.channels + c,
            };
            let v = if tensor.dtype() == DType::U8 {
                values[at]
            } else {
                (values[at] * pick(&options.std, 1.0, c) as f64 + pick(&options.mean, 0.0, c) as f64) * 255.0
            };
            pixels.push(v.round().clamp(0.0, 255.0) as u8);
        }
    }
    let mut bytes = Vec::new();
    let color = if f.channels == 1 { ExtendedColorType::L8 } else { ExtendedColorType::Rgb8 };
    PngEncoder::new(&mut bytes)
        .write_image(&pixels, f.width as u32, f.height as u32, color)
        .map_err(|e| Problem::Write(format!("cannot make a PNG: {e}")))?;
    Ok(bytes)
}

/// True when tensors of this shape are images.
pub(crate) fn is_image(shape: &[usize], options: &ImageOptions) -> Result<(), Problem> {
    frame(shape, options.layout).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temp(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("barewave-{}-{name}", std::process::id()))
    }

    #[test]
    fn what_decides_no_pixels_is_left_out() {
        let mut png = Vec::new();
        let pixels = [1, 2, 3, 4, 5, 6];
        image::codecs::png::PngEncoder::new(&mut png).write_image(&pixels, 2, 1, ExtendedColorType::Rgb8).unwrap();
        let plain = pixel_chunks(&png).ok().unwrap();
        // Behind the header of 33 bytes: a colour profile that claims to be one, with any checksum.
        let mut profile = 1000u32.to_be_bytes().to_vec();
        profile.extend(b"iCCP");
        profile.extend([0; 1004]);
        let mut with = png.clone();
        with.splice(33..33, profile);
        assert_eq!(pixel_chunks(&with).ok().unwrap(), plain);
        assert_eq!(Pixels::decode(&with).unwrap().data, pixels);
        // What is cut off stays for the decoder to refuse.
        for end in 0..png.len() {
            assert!(Pixels::decode(&png[..end]).is_err() || end >= png.len() - 12, "{end}");
        }
    }

    #[test]
    fn written_images_read_back_in_every_layout() {
        let path = temp("rgb.png");
        let values: Vec<f64> = (0..3 * 4 * 5).map(|i| i as f64 * 4.0 / 255.0).collect();
        let t = HostTensor::from_f64(DType::F32, &[1, 3, 4, 5], &values);
        let options = ImageOptions { mean: Some(vec![0.5, 0.4, 0.3]), std: Some(vec![0.2]), ..Default::default() };
        std::fs::write(&path, png_bytes(&t, &ImageOptions::default()).unwrap()).unwrap();
        let back = load_image(&path, DType::F32, &[1, 3, 4, 5], &ImageOptions::default()).unwrap();
        assert!(back.to_f64().iter().zip(&values).all(|(a, b)| (a - b).abs() < 1e-6));
        let last = load_image(&path, DType::U8, &[1, 4, 5, 3], &ImageOptions::default()).unwrap();
        assert_eq!(last.to_i64()[..3], [0, 80, 160]);
        let bgr = ImageOptions { color: Some(Color::Bgr), ..Default::default() };
        assert_eq!(load_image(&path, DType::U8, &[1, 4, 5, 3], &bgr).unwrap().to_i64()[..3], [160, 80, 0]);
        let scaled = load_image(&path, DType::F32, &[1, 3, 4, 5], &options).unwrap().to_f64();
        assert!((scaled[0] + 0.5 / 0.2).abs() < 1e-6 && (scaled[59] - (236.0 / 255.0 - 0.3) / 0.2).abs() < 1e-5);
        std::fs::write(&path, png_bytes(&HostTensor::from_f64(DType::F32, &[1, 3, 4, 5], &scaled), &options).unwrap())
            .unwrap();
        let again = load_image(&path, DType::F32, &[1, 3, 4, 5], &ImageOptions::default()).unwrap();
        assert_eq!(again, back);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn sizes_are_reached_in_three_ways() {
        // A white image twice as wide as high.
        let image = Pixels { width: 8, height: 4, channels: 3, data: vec![255; 96] };
        for how in [Resize::Stretch, Resize::Crop, Resize::Fit] {
            let out = image.bring_to_size(6, 6, how);
            assert_eq!((out.width, out.height, out.data.len()), (6, 6, 108));
            let black = out.data.iter().filter(|&&v| v == 0).count();
            assert_eq!(black, if how == Resize::Fit { 54 } else { 0 }, "{how:?}");
        }
    }

    #[test]
    fn shrinking_averages_and_growing_interpolates() {
        let row = |data: &[u8]| Pixels { width: data.len(), height: 1, channels: 1, data: data.to_vec() };
        // Pillow's bilinear filter gives the same numbers.
        assert_eq!(row(&[0, 0, 0, 0, 200, 200, 200, 200]).resized(4, 1).data, [0, 25, 175, 200]);
        assert_eq!(row(&[0, 100]).resized(4, 1).data, [0, 25, 75, 100]);
    }

    /// What Pillow's `resize(size, BILINEAR)` makes of a pattern, in hexadecimal: a line for each size, `width height pixels`.
    #[test]
    fn resizing_equals_pillows() {
        let (width, height) = (37, 23);
        for line in include_str!("../../tests/models/pillow.txt").lines().filter(|l| !l.starts_with('#')) {
            let words: Vec<&str> = line.split(' ').collect();
            let [w, h, channels] = [0, 1, 2].map(|i| words[i].parse::<usize>().unwrap());
            let at = |i: usize| {
                let (x, y, c) = (i / channels % width, i / channels / width, i % channels);
                (x * x * 7 + y * 13 + x * y * 5 + c * 31) as u8
            };
            let data = (0..width * height * channels).map(at).collect();
            let made = Pixels { width, height, channels, data }.resized(w, h).data;
            let want: Vec<u8> =
                (0..made.len()).map(|i| u8::from_str_radix(&words[3][2 * i..2 * i + 2], 16).unwrap()).collect();
            assert!(made == want, "{w} x {h}");
            assert_eq!(made.len() * 2, words[3].len());
        }
    }

    #[test]
    fn a_jpeg_is_decoded() {
        // 8 x 8 pixels, gray.
        let bytes = include_bytes!("../../tests/models/gray.jpg");
        let p = Pixels::decode(bytes).unwrap();
        assert_eq!((p.width, p.height), (8, 8));
        assert!(p.data.iter().all(|v| v.abs_diff(128) <= 2), "{:?}", p.data);
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
        for (key, text) in [("image.mean", "a,b"), ("image.std", "0.5,nan"), ("image.mean", "inf")] {
            let metadata = BTreeMap::from([(key.to_string(), text.to_string())]);
            let e = ImageOptions::from_metadata(&metadata).unwrap_err().to_string();
            assert!(e.contains(key) && e.contains(text), "{e}");
        }
    }
}
