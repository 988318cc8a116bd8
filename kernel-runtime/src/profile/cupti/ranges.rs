//! Counters of the hardware, of one launch at a time, by CUPTI's range profiler (CUDA 12.6 and later).
//!
//! A GPU counts a few things at once. CUPTI runs a kernel again, with memory as it was before, until it has counted all:
//! *passes*. What to count in which pass is decided by the part of CUPTI that knows the hardware (`cuptiProfilerHost`),
//! which also makes numbers of what was counted. That part needs no GPU.

use super::range_api::{
    AddMetrics, Api, Availability, ChipName, ConfigImage, ConfigSize, DataInfo, DataInitialize, DataSize, Decode,
    Enable, Evaluate, HostDeinitialize, HostInitialize, Nothing, Object, OfRanges, Params, PassCount, SetConfig, Stop,
    call,
};
use cudarc::driver::sys::{self, CUcontext};
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::{null, null_mut};

/// `CUPTI_PROFILER_TYPE_RANGE_PROFILER`.
const RANGE_PROFILER: c_int = 0;
/// `CUPTI_AutoRange`: each kernel is a range.
const AUTO_RANGE: c_int = 1;
/// `CUPTI_KernelReplay`: CUPTI runs kernels again.
const KERNEL_REPLAY: c_int = 2;
/// Kernels that there is room for: one is expected, and more are noticed.
const MAX_RANGES: usize = 8;

/// Names as CUPTI takes them.
struct Names {
    _texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

// SAFETY: the pointers are into the texts, which are there as long and do not change.
unsafe impl Send for Names {}

impl Names {
    fn new<'n>(names: impl Iterator<Item = &'n str>) -> Result<Names, String> {
        let texts: Result<Vec<CString>, String> = names
            .map(|name| {
                CString::new(name).map_err(|_| format!("{name:?} is no name of a counter: it has a zero in it"))
            })
            .collect();
        let texts = texts?;
        let pointers = texts.iter().map(|text| text.as_ptr()).collect();
        Ok(Names { _texts: texts, pointers })
    }

    fn count(&self) -> usize {
        self.pointers.len()
    }

    fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

/// Knows what a chip can count.
struct Host {
    api: Api,
    object: Object,
}

// SAFETY: CUPTI's objects may be used by one thread after another.
unsafe impl Send for Host {}

impl Host {
    /// For a chip, such as `GH100`; with what can be counted on a GPU, if that is known.
    fn new(api: Api, chip: &CStr, availability: Option<&[u8]>) -> Result<Host, String> {
        let availability = availability.map_or(null(), <[u8]>::as_ptr);
        let params = call!(
            api,
            host_initialize,
            "cuptiProfilerHostInitialize",
            HostInitialize { kind: RANGE_PROFILER, chip: chip.as_ptr(), availability, host: null_mut() }
        )?;
        Ok(Host { api, object: params.host })
    }

    fn add(&self, names: &Names) -> Result<(), String> {
        call!(
            self.api,
            add_metrics,
            "cuptiProfilerHostConfigAddMetrics",
            AddMetrics { host: self.object, names: names.as_ptr(), count: names.count() }
        )
        .map(drop)
    }

    /// How what was added is counted, and in how many passes.
    fn config(&self) -> Result<(Vec<u8>, usize), String> {
        let host = self.object;
        let size =
            call!(self.api, config_size, "cuptiProfilerHostGetConfigImageSize", ConfigSize { host, image_size: 0 })?;
        let mut image = vec![0; size.image_size];
        call!(
            self.api,
            config_image,
            "cuptiProfilerHostGetConfigImage",
            ConfigImage { host, image_size: image.len(), image: image.as_mut_ptr() }
        )?;
        let passes = call!(
            self.api,
            pass_count,
            "cuptiProfilerHostGetNumOfPasses",
            PassCount { image_size: image.len(), image: image.as_ptr(), passes: 0 }
        )?;
        Ok((image, passes.passes))
    }

    fn evaluate(&self, image: &[u8], names: &Names) -> Result<Vec<f64>, String> {
        let mut values = vec![0.0; names.count()];
        call!(
            self.api,
            evaluate,
            "cuptiProfilerHostEvaluateToGpuValues",
            Evaluate {
                host: self.object,
                image: image.as_ptr(),
                image_size: image.len(),
                range: 0,
                names: names.as_ptr(),
                count: names.count(),
                values: values.as_mut_ptr(),
            }
        )?;
        Ok(values)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ =
            call!(self.api, host_deinitialize, "cuptiProfilerHostDeinitialize", HostDeinitialize { host: self.object });
    }
}

/// The schedule of counters on a chip: who evaluates them, how they are counted, and in how many passes.
fn schedule(
    api: Api,
    chip: &CStr,
    availability: Option<&[u8]>,
    counters: &[&str],
) -> Result<(Host, Names, Vec<u8>, usize), String> {
    let names = Names::new(counters.iter().copied())?;
    let host = Host::new(api, chip, availability)?;
    if let Err(why) = host.add(&names) {
        // CUPTI does not say which.
        let is_unknown = |name: &&&str| {
            let one = Names::new(std::iter::once(**name));
            one.and_then(|one| Host::new(api, chip, availability)?.add(&one)).is_err()
        };
        let unknown: Vec<String> = counters.iter().filter(is_unknown).map(|name| format!("`{name}`")).collect();
        let chip = chip.to_string_lossy();
        return Err(match unknown.is_empty() {
            true => why,
            false => format!(
                "{chip} does not count {}; names are those of Nsight Compute, which `ncu --query-metrics` lists, with what \
                 is made of them: `dram__bytes_read.sum`",
                unknown.join(", ")
            ),
        });
    }
    let (config, passes) = host.config()?;
    Ok((host, names, config, passes))
}

/// The interface for profilers, between two calls.
struct Initialized(Api);

impl Initialized {
    fn new(api: Api) -> Result<Initialized, String> {
        call!(api, initialize, "cuptiProfilerInitialize", Nothing { nothing: [] })?;
        Ok(Initialized(api))
    }
}

impl Drop for Initialized {
    fn drop(&mut self) {
        let _ = call!(self.0, deinitialize, "cuptiProfilerDeInitialize", Nothing { nothing: [] });
    }
}

/// The counters of a context.
struct Enabled {
    api: Api,
    object: Object,
}

// SAFETY: CUPTI's objects may be used by one thread after another.
unsafe impl Send for Enabled {}

impl Drop for Enabled {
    fn drop(&mut self) {
        let _ = call!(self.api, disable, "cuptiRangeProfilerDisable", OfRanges { ranges: self.object });
    }
}

/// Launches are counted, one at a time.
pub(in crate::profile) struct Counting {
    // Dropped in this order.
    enabled: Enabled,
    host: Host,
    _initialized: Initialized,
    names: Names,
    config: Vec<u8>,
    passes: usize,
    /// Where CUPTI puts what was counted.
    image: Vec<u8>,
}

impl Counting {
    /// Begins to count in a context, which is current, on the device with that number.
    ///
    /// # Errors
    /// Why that cannot be.
    pub(in crate::profile) fn begin(context: CUcontext, device: usize, counters: &[&str]) -> Result<Counting, String> {
        let api = Api::get()?;
        let initialized = Initialized::new(api)?;
        let chip = call!(api, chip_name, "cuptiDeviceGetChipName", ChipName { device, name: null() })?.name;
        if chip.is_null() {
            return Err("cuptiDeviceGetChipName gives no name".to_string());
        }
        // SAFETY: the name is CUPTI's own and constant.
        let chip = unsafe { CStr::from_ptr(chip) };
        let available = availability(api, context)?;
        let (host, names, config, passes) = schedule(api, chip, Some(&available), counters)?;
        let ranges = call!(api, enable, "cuptiRangeProfilerEnable", Enable { context, ranges: null_mut() })?.ranges;
        let enabled = Enabled { api, object: ranges };
        let size = call!(
            api,
            data_size,
            "cuptiRangeProfilerGetCounterDataSize",
            DataSize {
                ranges,
                names: names.as_ptr(),
                count: names.count(),
                max_ranges: MAX_RANGES,
                max_nodes: MAX_RANGES as u32,
                image_size: 0,
            }
        )?;
        let image = vec![0; size.image_size];
        Ok(Counting { enabled, host, _initialized: initialized, names, config, passes, image })
    }

    /// What to call CUPTI.
    pub(in crate::profile) fn version(&self) -> u32 {
        self.host.api.cupti.version()
    }

    /// How often a kernel runs to be counted.
    pub(in crate::profile) fn passes(&self) -> usize {
        self.passes
    }

    /// Does something that launches a kernel into the context, which is current, and gives what was counted of it, in the order of the
    /// names; nothing if nothing ran.
    ///
    /// # Errors
    /// What CUPTI says.
    pub(in crate::profile) fn count<R>(&mut self, launch: impl FnOnce() -> R) -> (R, Result<Option<Vec<f64>>, String>) {
        // Kernels that run already are not to be counted.
        wait();
        if let Err(why) = self.start() {
            return (launch(), Err(why));
        }
        let result = launch();
        wait();
        (result, self.stop().and_then(|()| self.counted()))
    }

    fn start(&mut self) -> Result<(), String> {
        let (api, ranges) = (self.enabled.api, self.enabled.object);
        let (image_size, image) = (self.image.len(), self.image.as_mut_ptr());
        call!(
            api,
            data_initialize,
            "cuptiRangeProfilerCounterDataImageInitialize",
            DataInitialize { ranges, image_size, image }
        )?;
        call!(
            api,
            set_config,
            "cuptiRangeProfilerSetConfig",
            SetConfig {
                ranges,
                config_size: self.config.len(),
                config: self.config.as_ptr(),
                image_size,
                image,
                range: AUTO_RANGE,
                replay: KERNEL_REPLAY,
                max_ranges: MAX_RANGES,
                nesting_levels: 1,
                min_nesting_level: 1,
                pass: 0,
                target_nesting_level: 0,
            }
        )?;
        call!(api, start, "cuptiRangeProfilerStart", OfRanges { ranges }).map(drop)
    }

    fn stop(&mut self) -> Result<(), String> {
        let (api, ranges) = (self.enabled.api, self.enabled.object);
        call!(
            api,
            stop,
            "cuptiRangeProfilerStop",
            Stop { ranges, pass: 0, target_nesting_level: 0, is_all_submitted: 0 }
        )?;
        call!(api, decode, "cuptiRangeProfilerDecodeData", Decode { ranges, dropped: 0 }).map(drop)
    }

    fn counted(&self) -> Result<Option<Vec<f64>>, String> {
        let info = call!(
            self.enabled.api,
            data_info,
            "cuptiRangeProfilerGetCounterDataInfo",
            DataInfo { image: self.image.as_ptr(), image_size: self.image.len(), ranges: 0 }
        )?;
        match info.ranges {
            0 => Ok(None),
            1 => self.host.evaluate(&self.image, &self.names).map(Some),
            more => Err(format!("{more} kernels ran at once: others launched into the context meanwhile")),
        }
    }
}

/// Waits for all that the current context was given.
fn wait() {
    // SAFETY: it takes nothing. What goes wrong in a kernel is reported by who waits for it.
    let _ = unsafe { sys::cuCtxSynchronize() };
}

/// What can be counted in a context.
fn availability(api: Api, context: CUcontext) -> Result<Vec<u8>, String> {
    let size = call!(
        api,
        availability,
        "cuptiProfilerGetCounterAvailability",
        Availability { context, image_size: 0, image: null_mut() }
    )?;
    let mut image = vec![0; size.image_size];
    if image.is_empty() {
        return Err("cuptiProfilerGetCounterAvailability gives nothing".to_string());
    }
    call!(
        api,
        availability,
        "cuptiProfilerGetCounterAvailability",
        Availability { context, image_size: image.len(), image: image.as_mut_ptr() }
    )?;
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of CUPTI that knows chips runs without a GPU, where it is installed.
    #[test]
    fn the_usual_counters_are_known_to_the_chips_that_kernels_run_on() {
        let Ok(api) = Api::get() else { return };
        let Ok(_initialized) = Initialized::new(api) else { return };
        for chip in [c"GA100", c"GH100"] {
            let counters: Vec<&str> = crate::profile::counters::with_time(crate::profile::COUNTERS);
            match schedule(api, chip, None, &counters) {
                Ok((_, names, config, passes)) => {
                    assert!(names.count() == counters.len() && !config.is_empty() && passes > 0)
                }
                Err(why) => assert!(why.contains("LD_LIBRARY_PATH"), "{why}"),
            }
            match schedule(api, chip, None, &["dram__bytes_read.sum", "bytes_that_nobody_counts.sum"]) {
                Ok(_) => panic!("it cannot count that"),
                Err(why) => assert!(
                    why.contains("does not count `bytes_that_nobody_counts.sum`;") || why.contains("LD_LIBRARY_PATH"),
                    "{why}"
                ),
            }
        }
    }
}
