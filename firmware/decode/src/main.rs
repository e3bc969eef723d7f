//! Prints the log of an image, one line per frame: `decode IMAGE < FRAMES`.

use std::io::{Read, Write, stdin, stdout};
use std::{env, fs};

use anyhow::{Context, Result, bail};
use defmt_decoder::{DecodeError, Table};

fn main() -> Result<()> {
    let image = env::args_os().nth(1).context("which image?")?;
    let bytes = fs::read(&image).with_context(|| image.to_string_lossy().into_owned())?;
    let table = Table::parse(&bytes)?.context("the image logs nothing")?;
    let mut decoder = table.new_stream_decoder();
    let mut frames = Vec::new();
    stdin().read_to_end(&mut frames)?;
    decoder.received(&frames);
    let mut output = stdout().lock();
    loop {
        match decoder.decode() {
            Ok(frame) => {
                let level = frame.level().map_or("print", |level| level.as_str());
                writeln!(output, "{level} {}", frame.display_message())?;
            }
            Err(DecodeError::UnexpectedEof) => return Ok(()),
            Err(DecodeError::Malformed) => bail!("what came is no log of this image"),
        }
    }
}
