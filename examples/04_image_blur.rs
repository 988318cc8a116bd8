//! A picture, blurred and edge-detected: two-dimensional tiles, loops over a window, pixels as `u8`.
//!
//! Reads `examples/data/cat.png` (or the file given) and writes `blurred.png` and `edges.png` into the folder
//! given second, by default `target`.
//!
//! ```text
//! cargo run --release --example 04_image_blur [INPUT.png [FOLDER]]
//! ```

use std::error::Error as StdError;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use tilewright::prelude::*;

/// Gaussian blur of an image with `CHANNELS` interleaved bytes per pixel.
///
/// Program (i, j, c) makes a `ROWS` x `COLUMNS` tile of channel c. The window spans `2 * RADIUS + 1` pixels each
/// way, with a standard deviation of half the radius; at the border the nearest pixel is repeated.
#[kernel]
pub fn blur<const ROWS: usize, const COLUMNS: usize, const CHANNELS: usize, const RADIUS: usize>(
    image: Ptr<u8>,
    out: PtrMut<u8>,
    height: i32,
    width: i32,
) {
    let y = program_id(0) * ROWS + arange(0, ROWS);
    let x = program_id(1) * COLUMNS + arange(0, COLUMNS);
    let channel = program_id(2);
    let radius = RADIUS as i32;
    let sigma = RADIUS as f32 / 2.0;
    let mut total = zeros::<f32>([ROWS, COLUMNS]);
    let mut weights = 0.0f32;
    for dy in -radius..radius + 1 {
        for dx in -radius..radius + 1 {
            let weight = exp(-((dy * dy + dx * dx) as f32) / (2.0 * sigma * sigma));
            let row = clamp(y + dy, 0, height - 1);
            let column = clamp(x + dx, 0, width - 1);
            let pixel = (row[(.., None)] * width + column[(None, ..)]) * CHANNELS + channel;
            total += weight * load(image + pixel) as f32;
            weights += weight;
        }
    }
    let inside = (y < height)[(.., None)] & (x < width)[(None, ..)];
    let pixel = (y[(.., None)] * width + x[(None, ..)]) * CHANNELS + channel;
    store(out + pixel, (total / weights + 0.5) as u8, mask = inside);
}

/// Edges by Sobel's operator: the length of the gradient of the brightness, as one byte per pixel.
#[kernel]
pub fn edges<const ROWS: usize, const COLUMNS: usize, const CHANNELS: usize>(
    image: Ptr<u8>,
    out: PtrMut<u8>,
    height: i32,
    width: i32,
) {
    let y = program_id(0) * ROWS + arange(0, ROWS);
    let x = program_id(1) * COLUMNS + arange(0, COLUMNS);
    let mut gx = zeros::<f32>([ROWS, COLUMNS]);
    let mut gy = zeros::<f32>([ROWS, COLUMNS]);
    for dy in -1..2 {
        for dx in -1..2 {
            let row = clamp(y + dy, 0, height - 1);
            let column = clamp(x + dx, 0, width - 1);
            let pixel = (row[(.., None)] * width + column[(None, ..)]) * CHANNELS;
            let mut brightness = zeros::<f32>([ROWS, COLUMNS]);
            for channel in 0..CHANNELS as i32 {
                brightness += load(image + pixel + channel) as f32;
            }
            // The middle row and column weigh double.
            gx += brightness * (dx * (2 - dy * dy)) as f32;
            gy += brightness * (dy * (2 - dx * dx)) as f32;
        }
    }
    let length = sqrt(gx * gx + gy * gy) / CHANNELS as f32;
    let inside = (y < height)[(.., None)] & (x < width)[(None, ..)];
    store(out + y[(.., None)] * width + x[(None, ..)], minimum(length, 255.0) as u8, mask = inside);
}

/// An image with interleaved bytes.
struct Image {
    height: usize,
    width: usize,
    color: png::ColorType,
    bytes: Vec<u8>,
}

fn read(path: &Path) -> Result<Image, Box<dyn StdError>> {
    let file = File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut reader = png::Decoder::new(BufReader::new(file)).read_info()?;
    let mut bytes = vec![0; reader.output_buffer_size().ok_or("the image is too large")?];
    let info = reader.next_frame(&mut bytes)?;
    if info.bit_depth != png::BitDepth::Eight || info.color_type == png::ColorType::Indexed {
        return Err("expected 8 bits per channel".into());
    }
    bytes.truncate(info.buffer_size());
    Ok(Image { height: info.height as usize, width: info.width as usize, color: info.color_type, bytes })
}

fn write(path: &Path, image: &Image) -> Result<(), Box<dyn StdError>> {
    let mut encoder = png::Encoder::new(File::create(path)?, image.width as u32, image.height as u32);
    encoder.set_color(image.color);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(&image.bytes)?;
    println!("wrote {}", path.display());
    Ok(())
}

fn main() -> Result<(), Box<dyn StdError>> {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let input = args.next().unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data/cat.png"));
    let folder = args.next().unwrap_or_else(|| PathBuf::from("target"));
    std::fs::create_dir_all(&folder)?;

    let device = Device::best()?;
    let picture = read(&input)?;
    let (height, width, channels) = (picture.height, picture.width, picture.color.samples());
    println!("{}: {width} x {height} pixels of {channels} channels, on {}", input.display(), device.name());

    let image = device.upload(&picture.bytes)?;
    let mut blurred = device.zeros::<u8>(picture.bytes.len())?;
    let consts = BlurConsts { ROWS: 16, COLUMNS: 64, CHANNELS: channels, RADIUS: 4 };
    consts
        .call(&image, &mut blurred, height as i32, width as i32)
        .grid_with(|c| (height.div_ceil(c.ROWS), width.div_ceil(c.COLUMNS), c.CHANNELS))
        .launch(&device)?;

    // The second kernel reads what the first wrote: launches on one device run in order.
    let mut edge = device.zeros::<u8>(height * width)?;
    EdgesConsts { ROWS: 16, COLUMNS: 64, CHANNELS: channels }
        .call(&blurred, &mut edge, height as i32, width as i32)
        .grid_with(|c| (height.div_ceil(c.ROWS), width.div_ceil(c.COLUMNS)))
        .launch(&device)?;

    write(&folder.join("blurred.png"), &Image { bytes: blurred.to_vec()?, ..picture })?;
    let edge = Image { height, width, color: png::ColorType::Grayscale, bytes: edge.to_vec()? };
    write(&folder.join("edges.png"), &edge)?;
    Ok(())
}
