//! How long the decoder takes, and how far its logits are from what they should be.

use crate::arguments::Arguments;
use crate::model::{Cache, Model};
use crate::ops::{Op, Ops};
use candle_core::{Device, Result, Tensor};
use std::fmt;
use std::time::{Duration, Instant};

/// How far logits may be from those in a dtype with more bits, over how far candle's are.
///
/// Both errors are sums of the roundings of all ops on the way. Ours round no more often than candle's: fused ops leave
/// roundings out, scores and sums are f32. So the errors are of one size, and the largest of some hundred logits is two samples
/// of one distribution, whose maxima differ by less than this.
pub const MOST: f64 = 2.0;

/// Tokens after the prompt whose logits are compared.
const COMPARED: usize = 4;

/// What was measured with some ops exchanged.
pub struct Row {
    /// The op that was exchanged last.
    pub label: &'static str,
    /// Of the prompt.
    pub prompt: Duration,
    /// Of each token after it, of all sequences.
    pub token: Duration,
    /// The largest error of a logit.
    pub error: f64,
    /// The prompt's time with candle's ops alone, and a token's.
    pub before: (Duration, Duration),
}

/// Runs the decoder with candle's ops, then with one op after the other exchanged.
///
/// # Errors
///
/// Those of ops, and if logits are further off than they may be.
pub fn compare(arguments: &Arguments, mut report: impl FnMut(&Row)) -> Result<Vec<Row>> {
    let (dtype, wider) = arguments.dtypes();
    let count = arguments.prompt + arguments.tokens;
    let model = Model::random(arguments.shape, (arguments.batch, count), dtype, &arguments.device)?;
    let tokens = tokens((arguments.batch, count), arguments.shape.vocabulary, &arguments.device)?;
    let compared = arguments.tokens.min(COMPARED);
    let want = {
        let wide = model.to_dtype(wider)?;
        logits(&wide, &Ops::default(), &tokens, arguments.prompt, compared, &wide.cache()?)?
    };
    let cache = model.cache()?;
    let mut rows: Vec<Row> = Vec::new();
    for exchanged in 0..=Op::ALL.len() {
        let ops = Ops(Op::ALL[..exchanged].to_vec());
        let label = exchanged.checked_sub(1).map_or("candle's ops alone", |last| Op::ALL[last].name());
        let got = logits(&model, &ops, &tokens, arguments.prompt, compared, &cache)?;
        let error = furthest(&got, &want)?;
        let (prompt, token) = time(arguments, &model, &ops, &tokens, &cache)?;
        let before = rows.first().map_or((prompt, token), |first| (first.prompt, first.token));
        rows.push(Row { label, prompt, token, error, before });
        report(&rows[exchanged]);
        if error.is_nan() || error > MOST * rows[0].error {
            let text = format!("{label}: logits are off by {error:.2e}, candle's by {:.2e}", rows[0].error);
            return Err(candle_core::Error::Msg(text));
        }
    }
    Ok(rows)
}

/// Any tokens, the same each time, and others in each sequence: `[batch, count]`.
fn tokens(shape: (usize, usize), vocabulary: usize, device: &Device) -> Result<Tensor> {
    let count = (shape.0 * shape.1) as u64;
    let numbers: Vec<u32> = (0..count).map(|at| (at * 7919 + 13) as u32 % vocabulary as u32).collect();
    Tensor::from_vec(numbers, shape, device)
}

/// The logits behind the prompt, and behind each of some tokens after it.
fn logits(
    model: &Model,
    ops: &Ops,
    tokens: &Tensor,
    prompt: usize,
    after: usize,
    cache: &Cache,
) -> Result<Vec<Vec<f64>>> {
    let mut all = vec![model.forward(ops, &tokens.narrow(1, 0, prompt)?, 0, cache)?];
    for at in prompt..prompt + after {
        all.push(model.forward(ops, &tokens.narrow(1, at, 1)?, at, cache)?);
    }
    all.iter().map(|logits| logits.to_dtype(candle_core::DType::F64)?.to_vec1()).collect()
}

/// The largest difference; NaN if a logit is.
fn furthest(got: &[Vec<f64>], want: &[Vec<f64>]) -> Result<f64> {
    let pairs = got.iter().flatten().zip(want.iter().flatten());
    Ok(pairs.fold(0.0, |most: f64, (got, want)| {
        let error = (got - want).abs();
        if error > most || error.is_nan() { error } else { most }
    }))
}

/// The median time of the prompt, and the mean of the tokens after it. All kernels were compiled before.
fn time(
    arguments: &Arguments,
    model: &Model,
    ops: &Ops,
    tokens: &Tensor,
    cache: &Cache,
) -> Result<(Duration, Duration)> {
    let device = &arguments.device;
    let prompt = tokens.narrow(1, 0, arguments.prompt)?;
    let mut times = Vec::new();
    for _ in 0..arguments.repeat {
        device.synchronize()?;
        let start = Instant::now();
        model.forward(ops, &prompt, 0, cache)?;
        device.synchronize()?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let start = Instant::now();
    for at in arguments.prompt..arguments.prompt + arguments.tokens {
        model.forward(ops, &tokens.narrow(1, at, 1)?, at, cache)?;
    }
    device.synchronize()?;
    tilewright_candle::synchronize(device)?;
    Ok((times[times.len() / 2], start.elapsed() / arguments.tokens as u32))
}

impl Row {
    /// How many times faster than candle's ops alone: the prompt, and a token.
    pub fn gains(&self) -> (f64, f64) {
        let times = |before: Duration, now: Duration| before.as_secs_f64() / now.as_secs_f64();
        (times(self.before.0, self.prompt), times(self.before.1, self.token))
    }

    /// What all rows come to.
    pub fn summary(rows: &[Row], device: &Device) -> String {
        let Some(last) = rows.last().filter(|_| device.is_cuda()) else {
            return "on the CPU kernels run in an interpreter, which checks every access: times say nothing there"
                .into();
        };
        let (prompt, token) = last.gains();
        format!("with all exchanged the prompt takes 1 / {prompt:.2} of the time, a token 1 / {token:.2}")
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plus = if self.label.starts_with("candle") { "" } else { "+ " };
        let ((prompt, token), ms) = (self.gains(), |time: Duration| 1e3 * time.as_secs_f64());
        write!(
            f,
            "{:<20} prompt {:>9.3} ms ({prompt:>5.2}x)   token {:>8.3} ms ({token:>5.2}x)   logits within {:.1e}",
            format!("{plus}{}", self.label),
            ms(self.prompt),
            ms(self.token),
            self.error
        )
    }
}
