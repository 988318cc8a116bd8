//! Random launches, copies and reads, against a model that keeps for every element the failed launches
//! that it depends on.

use crate::kernels::{BEYOND, choose, number, on_devices, pick, spread};
use kernel_runtime::{Buffer, Device, Result, Stream};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

const BUFFERS: usize = 5;
const LEN: usize = 8;
const STEPS: usize = 250;

/// Pseudo-random numbers: xorshift64*, <https://doi.org/10.18637/jss.v008.i14>.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize) % limit
    }

    /// A whole buffer, one of its halves, or a middle part.
    fn range(&mut self) -> Range<usize> {
        [0..LEN, 0..LEN, 0..LEN / 2, LEN / 2..LEN, 2..7][self.below(5)].clone()
    }

    /// Different buffers.
    fn buffers<const N: usize>(&mut self) -> [usize; N] {
        let first = self.below(BUFFERS);
        std::array::from_fn(|index| (first + index) % BUFFERS)
    }
}

/// Of every element, the failed launches that it depends on whose errors nobody has taken.
type Depends = [BTreeSet<i64>; LEN];

struct Run<'d> {
    device: &'d Device,
    streams: Vec<Stream>,
    random: Random,
    /// What launch `n` is told: zero, or that it fails.
    told: Vec<i64>,
    table: Buffer<i64>,
    buffers: Vec<Buffer<f32>>,
    depends: Vec<Depends>,
    /// Errors that nobody has taken, with their streams.
    errors: BTreeMap<i64, usize>,
    launches: i64,
}

impl<'d> Run<'d> {
    fn new(device: &'d Device, seed: u64) -> Result<Self> {
        let mut random = Random(2 * seed + 1);
        let fails_one_in = [2, 8, 40][seed as usize % 3];
        let entry = |launch: i64| if random.below(fails_one_in) == 0 { BEYOND + launch } else { 0 };
        let told: Vec<i64> = (0..STEPS as i64).map(entry).collect();
        Ok(Run {
            device,
            streams: (0..3).map(|_| device.new_stream()).collect::<Result<_>>()?,
            table: device.upload(&told)?,
            told,
            random,
            buffers: (0..BUFFERS).map(|_| device.zeros(LEN)).collect::<Result<_>>()?,
            depends: vec![Depends::default(); BUFFERS],
            errors: BTreeMap::new(),
            launches: 0,
        })
    }

    /// Notes a launch that reads and writes these parts; gives its number and stream.
    fn note(&mut self, reads: &[(usize, Range<usize>)], writes: &[(usize, Range<usize>)], fails: bool) -> (i64, usize) {
        let (launch, stream) = (self.launches, self.random.below(self.streams.len()));
        self.launches += 1;
        let mut all: BTreeSet<i64> = BTreeSet::new();
        for (buffer, range) in reads {
            all.extend(self.depends[*buffer][range.clone()].iter().flatten());
        }
        if fails {
            all.insert(launch);
            self.errors.insert(launch, stream);
        }
        for (buffer, range) in writes {
            self.depends[*buffer][range.clone()].iter_mut().for_each(|launches| launches.extend(&all));
        }
        (launch, stream)
    }

    /// Takes buffers out, to write them while others are read.
    fn take(&mut self, buffer: usize) -> Result<Buffer<f32>> {
        let empty = self.device.zeros(0)?;
        Ok(std::mem::replace(&mut self.buffers[buffer], empty))
    }

    fn launch_pick(&mut self) -> Result<()> {
        let ([from, to], r, w) = (self.random.buffers(), self.random.range(), self.random.range());
        let fails = self.random.below(10) == 0;
        let (launch, stream) = self.note(&[(from, r.clone())], &[(to, w.clone())], fails);
        let mut out = self.take(to)?;
        let number = fails.then_some(launch);
        let call = pick(self.buffers[from].slice(r)?, out.slice_mut(w)?, number);
        call.grid(1).stream(&self.streams[stream]).launch(self.device)?;
        self.buffers[to] = out;
        Ok(())
    }

    fn launch_choose(&mut self) -> Result<()> {
        let ([from, to], r, w) = (self.random.buffers(), self.random.range(), self.random.range());
        let fails = self.told[self.launches as usize] != 0;
        let (launch, stream) = self.note(&[(from, r.clone())], &[(to, w.clone())], fails);
        let mut out = self.take(to)?;
        let index = self.table.slice(launch as usize..)?;
        let call = choose(self.buffers[from].slice(r)?, index, out.slice_mut(w)?);
        call.grid(1).stream(&self.streams[stream]).launch(self.device)?;
        self.buffers[to] = out;
        Ok(())
    }

    fn launch_spread(&mut self) -> Result<()> {
        let ([from, more, out], r, m, w) =
            (self.random.buffers(), self.random.range(), self.random.range(), self.random.range());
        let reads = [(from, r.clone()), (more, m.clone())];
        let (_, stream) = self.note(&reads, &[(more, m.clone()), (out, w.clone())], false);
        let (mut more_buffer, mut out_buffer) = (self.take(more)?, self.take(out)?);
        let call = spread(self.buffers[from].slice(r)?, more_buffer.slice_mut(m)?, out_buffer.slice_mut(w)?);
        call.grid(1).stream(&self.streams[stream]).launch(self.device)?;
        self.buffers[more] = more_buffer;
        self.buffers[out] = out_buffer;
        Ok(())
    }

    /// Copies a part of a buffer to another, or to a new buffer that takes the other's place.
    fn copy(&mut self) -> Result<()> {
        let ([from, to], range) = (self.random.buffers(), self.random.range());
        let copied = self.depends[from][range.clone()].to_vec();
        if range.len() == LEN && self.random.below(2) == 0 {
            self.buffers[to] = self.buffers[from].copy()?;
        } else {
            let mut target = self.take(to)?;
            target.slice_mut(range.clone())?.copy_from(&self.buffers[from].slice(range.clone())?)?;
            self.buffers[to] = target;
        }
        for (element, launches) in range.clone().zip(copied) {
            match range.len() == LEN {
                true => self.depends[to][element] = launches,
                false => self.depends[to][element].extend(launches),
            }
        }
        Ok(())
    }

    fn set(&mut self) -> Result<()> {
        let (buffer, range) = (self.random.below(BUFFERS), self.random.range());
        let mut target = self.buffers[buffer].slice_mut(range.clone())?;
        match self.random.below(2) {
            0 => target.fill(3.0)?,
            _ => target.copy_from_slice(&vec![4.0; range.len()])?,
        }
        if range.len() == LEN {
            self.depends[buffer] = Depends::default();
        }
        Ok(())
    }

    fn deliver(&mut self, launch: Option<i64>) {
        let Some(launch) = launch else { return };
        self.errors.remove(&launch);
        self.depends.iter_mut().flatten().for_each(|launches| _ = launches.remove(&launch));
    }

    fn read(&mut self) -> Result<()> {
        let (buffer, range) = (self.random.below(BUFFERS), self.random.range());
        let oldest = self.depends[buffer][range.clone()].iter().flatten().min().copied();
        assert_eq!(number(self.buffers[buffer].slice(range)?.to_vec()), oldest);
        self.deliver(oldest);
        Ok(())
    }

    fn synchronize(&mut self) {
        let stream = self.random.below(self.streams.len() + 2);
        let oldest = match self.streams.get(stream) {
            Some(stream_used) => {
                let oldest = self.errors.iter().find(|(_, on)| **on == stream).map(|(launch, _)| *launch);
                assert_eq!(number(stream_used.synchronize()), oldest);
                oldest
            }
            None => {
                let oldest = self.errors.first_key_value().map(|(launch, _)| *launch);
                assert_eq!(number(self.device.synchronize()), oldest);
                oldest
            }
        };
        self.deliver(oldest);
    }

    fn step(&mut self) -> Result<()> {
        match self.random.below(20) {
            0..4 => self.launch_pick(),
            4..9 => self.launch_choose(),
            9..12 => self.launch_spread(),
            12..14 => self.copy(),
            14 | 15 => self.set(),
            16..19 => self.read(),
            _ => {
                self.synchronize();
                Ok(())
            }
        }
    }
}

#[test]
fn random_programs_deliver_what_a_model_says() -> Result<()> {
    on_devices(|device| {
        for seed in 1..=60 {
            let mut run = Run::new(device, seed)?;
            for _ in 0..STEPS {
                run.step()?;
            }
            while let Some((launch, _)) = run.errors.pop_first() {
                assert_eq!(number(device.synchronize()), Some(launch));
            }
            device.synchronize()?;
        }
        Ok(())
    })
}
