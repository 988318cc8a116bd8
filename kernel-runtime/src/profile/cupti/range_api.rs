//! CUPTI's range profiler as C has it: its structures of parameters, and its functions.

use super::{Cupti, functions, size_to};
use cudarc::driver::sys::CUcontext;
use std::ffi::{c_char, c_int, c_void};

/// A structure of parameters, which begins with its size.
pub(super) trait Params: Sized {
    /// What CUPTI is told to be its size: up to the end of the last field.
    const SIZE: usize;
}

/// Declares a structure of parameters; the last field comes last.
macro_rules! params {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $ty:ty,)* ; $last:ident: $last_ty:ty }) => {
        $(#[$meta])*
        #[repr(C)]
        pub(super) struct $name {
            pub(super) size: usize,
            pub(super) private: *mut c_void,
            $(pub(super) $field: $ty,)*
            pub(super) $last: $last_ty,
        }

        impl Params for $name {
            const SIZE: usize = size_to!($name, $last: $last_ty);
        }
    };
}

/// What CUPTI makes and is given back.
pub(super) type Object = *mut c_void;

params! {
    /// `CUpti_Device_GetChipName_Params`
    ChipName { device: usize, ; name: *const c_char }
}
params! {
    /// `CUpti_Profiler_GetCounterAvailability_Params`
    Availability { context: CUcontext, image_size: usize, ; image: *mut u8 }
}
params! {
    /// `CUpti_Profiler_Host_Initialize_Params`
    HostInitialize { kind: c_int, chip: *const c_char, availability: *const u8, ; host: Object }
}
params! {
    /// `CUpti_Profiler_Host_Deinitialize_Params`
    HostDeinitialize { ; host: Object }
}
params! {
    /// `CUpti_Profiler_Host_ConfigAddMetrics_Params`
    AddMetrics { host: Object, names: *const *const c_char, ; count: usize }
}
params! {
    /// `CUpti_Profiler_Host_GetConfigImageSize_Params`
    ConfigSize { host: Object, ; image_size: usize }
}
params! {
    /// `CUpti_Profiler_Host_GetConfigImage_Params`
    ConfigImage { host: Object, image_size: usize, ; image: *mut u8 }
}
params! {
    /// `CUpti_Profiler_Host_GetNumOfPasses_Params`
    PassCount { image_size: usize, image: *const u8, ; passes: usize }
}
params! {
    /// `CUpti_Profiler_Host_EvaluateToGpuValues_Params`
    Evaluate {
        host: Object,
        image: *const u8,
        image_size: usize,
        range: usize,
        names: *const *const c_char,
        count: usize,
        ; values: *mut f64
    }
}
params! {
    /// `CUpti_RangeProfiler_Enable_Params`
    Enable { context: CUcontext, ; ranges: Object }
}
params! {
    /// `CUpti_RangeProfiler_Disable_Params`, and that of `Start`
    OfRanges { ; ranges: Object }
}
params! {
    /// `CUpti_RangeProfiler_GetCounterDataSize_Params`
    DataSize {
        ranges: Object,
        names: *const *const c_char,
        count: usize,
        max_ranges: usize,
        max_nodes: u32,
        ; image_size: usize
    }
}
params! {
    /// `CUpti_RangeProfiler_CounterDataImage_Initialize_Params`
    DataInitialize { ranges: Object, image_size: usize, ; image: *mut u8 }
}
params! {
    /// `CUpti_RangeProfiler_SetConfig_Params`
    SetConfig {
        ranges: Object,
        config_size: usize,
        config: *const u8,
        image_size: usize,
        image: *mut u8,
        range: c_int,
        replay: c_int,
        max_ranges: usize,
        nesting_levels: u16,
        min_nesting_level: u16,
        pass: usize,
        ; target_nesting_level: u16
    }
}
params! {
    /// `CUpti_RangeProfiler_Stop_Params`
    Stop { ranges: Object, pass: usize, target_nesting_level: usize, ; is_all_submitted: u8 }
}
params! {
    /// `CUpti_RangeProfiler_DecodeData_Params`
    Decode { ranges: Object, ; dropped: usize }
}
params! {
    /// `CUpti_RangeProfiler_GetCounterDataInfo_Params`
    DataInfo { image: *const u8, image_size: usize, ; ranges: usize }
}
params! {
    /// `CUpti_Profiler_Initialize_Params`, and that of `DeInitialize`: nothing but the size
    Nothing { ; nothing: [usize; 0] }
}

functions! {
    pub(super) struct Functions;
    initialize = cuptiProfilerInitialize(*mut Nothing);
    deinitialize = cuptiProfilerDeInitialize(*mut Nothing);
    chip_name = cuptiDeviceGetChipName(*mut ChipName);
    availability = cuptiProfilerGetCounterAvailability(*mut Availability);
    host_initialize = cuptiProfilerHostInitialize(*mut HostInitialize);
    host_deinitialize = cuptiProfilerHostDeinitialize(*mut HostDeinitialize);
    add_metrics = cuptiProfilerHostConfigAddMetrics(*mut AddMetrics);
    config_size = cuptiProfilerHostGetConfigImageSize(*mut ConfigSize);
    config_image = cuptiProfilerHostGetConfigImage(*mut ConfigImage);
    pass_count = cuptiProfilerHostGetNumOfPasses(*mut PassCount);
    evaluate = cuptiProfilerHostEvaluateToGpuValues(*mut Evaluate);
    enable = cuptiRangeProfilerEnable(*mut Enable);
    disable = cuptiRangeProfilerDisable(*mut OfRanges);
    data_size = cuptiRangeProfilerGetCounterDataSize(*mut DataSize);
    data_initialize = cuptiRangeProfilerCounterDataImageInitialize(*mut DataInitialize);
    set_config = cuptiRangeProfilerSetConfig(*mut SetConfig);
    start = cuptiRangeProfilerStart(*mut OfRanges);
    stop = cuptiRangeProfilerStop(*mut Stop);
    decode = cuptiRangeProfilerDecodeData(*mut Decode);
    data_info = cuptiRangeProfilerGetCounterDataInfo(*mut DataInfo);
}

/// CUPTI with what is called here.
#[derive(Clone, Copy)]
pub(super) struct Api {
    pub(super) cupti: &'static Cupti,
    pub(super) functions: &'static Functions,
}

/// Makes parameters and calls a function with them; gives them back.
macro_rules! call {
    ($api:expr, $function:ident, $name:literal, $params:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {{
        let mut params = $params { size: $params::SIZE, private: std::ptr::null_mut(), $($field $(: $value)?),* };
        // SAFETY: the parameters have the layout that the function takes; what they point at is alive and large enough, as
        // each caller says.
        let status = unsafe { ($api.functions.$function)(&mut params) };
        $api.cupti.check($name, status).map(|()| params)
    }};
}
pub(super) use call;

impl Api {
    pub(super) fn get() -> Result<Api, String> {
        static FUNCTIONS: std::sync::OnceLock<Result<Functions, String>> = std::sync::OnceLock::new();
        let cupti = super::loaded()?;
        cupti.check_counts()?;
        let functions = FUNCTIONS.get_or_init(|| Functions::of(cupti)).as_ref().map_err(Clone::clone)?;
        Ok(Api { cupti, functions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From CUPTI's headers, of 12.6, 12.9 and 13.0.
    #[test]
    fn structures_are_as_large_as_cupti_says() {
        assert_eq!((ChipName::SIZE, Availability::SIZE, Nothing::SIZE), (32, 40, 16));
        assert_eq!((HostInitialize::SIZE, HostDeinitialize::SIZE, AddMetrics::SIZE), (48, 24, 40));
        assert_eq!((ConfigSize::SIZE, ConfigImage::SIZE, PassCount::SIZE, Evaluate::SIZE), (32, 40, 40, 72));
        assert_eq!((Enable::SIZE, OfRanges::SIZE, DataSize::SIZE, DataInitialize::SIZE), (32, 24, 64, 40));
        assert_eq!((SetConfig::SIZE, Stop::SIZE, Decode::SIZE, DataInfo::SIZE), (90, 41, 32, 40));
    }
}
