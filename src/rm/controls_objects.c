/* Controls of the debugger, of channels and groups, of video sessions, of confidential computing and of counters. */
#include "rm/controls.h"

static const struct rm_control_entry entries[] = {
	REFUSED(0x503c0102, "REGISTER_VA_SPACE"),				  /* class refused: 0x503c */
	REFUSED(0x503c0103, "UNREGISTER_VA_SPACE"),				  /* class refused: 0x503c */
	REFUSED(0x503c0104, "REGISTER_VIDMEM"),					  /* class refused: 0x503c */
	REFUSED(0x503c0105, "UNREGISTER_VIDMEM"),				  /* class refused: 0x503c */
	REFUSED(0x503c0106, "REGISTER_PID"),					  /* class refused: 0x503c */
	REFUSED(0x50800101, "DEFERRED_API"),					  /* class refused: 0x5080 */
	REFUSED(0x50800102, "REMOVE_API"),					  /* class refused: 0x5080 */
	REFUSED(0x50800103, "DEFERRED_API_V2"),					  /* class refused: 0x5080 */
	CONTROL(0x83de0301, COPY, 0, "SM_DEBUG_MODE_ENABLE"),			  /* debugger */
	CONTROL(0x83de0302, COPY, 0, "SM_DEBUG_MODE_DISABLE"),			  /* debugger */
	CONTROL(0x83de0307, COPY, 4, "DEBUG_SET_MODE_MMU_DEBUG"),		  /* debugger */
	CONTROL(0x83de0308, COPY, 4, "DEBUG_GET_MODE_MMU_DEBUG"),		  /* debugger */
	CONTROL(0x83de0309, COPY, 4, "DEBUG_SET_EXCEPTION_MASK"),		  /* cuda opencl debugger */
	CONTROL(0x83de030b, COPY, 56, "DEBUG_READ_SINGLE_SM_ERROR_STATE"),	  /* debugger */
	CONTROL(0x83de030c, COPY, 4824, "DEBUG_READ_ALL_SM_ERROR_STATES"),	  /* cuda debugger */
	CONTROL(0x83de030f, COPY, 8, "DEBUG_CLEAR_SINGLE_SM_ERROR_STATE"),	  /* debugger */
	CONTROL(0x83de0310, COPY, 8, "DEBUG_CLEAR_ALL_SM_ERROR_STATES"),	  /* debugger */
	CONTROL(0x83de0313, COPY, 4, "DEBUG_SET_NEXT_STOP_TRIGGER_TYPE"),	  /* debugger */
	CONTROL(0x83de0314, COPY, 4, "DEBUG_SET_SINGLE_STEP_INTERRUPT_HANDLING"), /* debugger */
	POINTERS(0x83de0315, COPY, 24, "DEBUG_READ_MEMORY", 1, AT(16, 4, 1, 1, 65536)),	 /* debugger */
	POINTERS(0x83de0316, COPY, 24, "DEBUG_WRITE_MEMORY", 1, AT(16, 4, 1, 1, 65536)), /* debugger */
	CONTROL(0x83de0317, COPY, 8, "DEBUG_SUSPEND_CONTEXT"),				 /* debugger */
	CONTROL(0x83de0318, COPY, 0, "DEBUG_RESUME_CONTEXT"),				 /* debugger */
	REFUSED(0x83de031a, "READ_SURFACE"),	   /* a pointer in each entry */
	REFUSED(0x83de031b, "WRITE_SURFACE"),	   /* a pointer in each entry */
	REFUSED(0x83de031d, "DEBUG_EXEC_REG_OPS"), /* reads and writes registers of the GPU */
	CONTROL(0x83de031f, COPY, 4, "DEBUG_SET_MODE_ERRBAR_DEBUG"),		   /* debugger */
	CONTROL(0x83de0320, COPY, 4, "DEBUG_GET_MODE_ERRBAR_DEBUG"),		   /* debugger */
	CONTROL(0x83de0321, COPY, 8, "DEBUG_SET_SINGLE_SM_SINGLE_STEP"),	   /* debugger */
	CONTROL(0x83de0322, COPY, 8, "DEBUG_SET_SINGLE_SM_STOP_TRIGGER"),	   /* debugger */
	CONTROL(0x83de0323, COPY, 8, "DEBUG_SET_SINGLE_SM_RUN_TRIGGER"),	   /* debugger */
	CONTROL(0x83de0324, COPY, 8, "DEBUG_SET_SINGLE_SM_SKIP_IDLE_WARP_DETECT"), /* debugger */
	CONTROL(0x83de0325, COPY, 12, "DEBUG_GET_SINGLE_SM_DEBUGGER_STATUS"),	   /* debugger */
	REFUSED(0x83de0326, "DEBUG_READ_BATCH_MEMORY"),			      /* a pointer in each entry */
	REFUSED(0x83de0327, "DEBUG_WRITE_BATCH_MEMORY"),		      /* a pointer in each entry */
	CONTROL(0x83de0328, COPY, 72, "DEBUG_READ_MMU_FAULT_INFO"),	      /* debugger */
	IN(SERIES_590_ON, 0x83de0329, COPY, 1, "DEBUG_SET_DROP_DEFERRED_RC"), /* debugger */
	CONTROL(0x83de032a, COPY, 4, "DEBUG_SET_MODE_MMU_GCC_DEBUG"),	      /* debugger */
	CONTROL(0x83de032b, COPY, 4, "DEBUG_GET_MODE_MMU_GCC_DEBUG"),	      /* debugger */
	CONTROL(0x906f0101, COPY, 16, "GET_CLASS_ENGINEID"),		      /* cuda opencl */
	CONTROL(0x906f0102, COPY, 16, "RESET_CHANNEL"),			      /* debugger */
	CONTROL(0x906f0105, COPY, 1, "GET_DEFER_RC_STATE"),
	CONTROL(0x906f0106, COPY, 104, "GET_MMU_FAULT_INFO"),
	CONTROL(0x90960101, COPY, 40, "SET_ZBC_COLOR_CLEAR"), /* graphics */
	CONTROL(0x90960102, COPY, 12, "SET_ZBC_DEPTH_CLEAR"),
	CONTROL(0x90960103, COPY, 64, "GET_ZBC_CLEAR_TABLE"),
	CONTROL(0x90960105, COPY, 12, "SET_ZBC_STENCIL_CLEAR"),
	CONTROL(0x90960106, COPY, 12, "GET_ZBC_CLEAR_TABLE_SIZE"),  /* graphics */
	CONTROL(0x90960107, COPY, 56, "GET_ZBC_CLEAR_TABLE_ENTRY"), /* graphics */
	REFUSED(0x90cc0101, "HWPM_RESERVE"), /* class refused: profiler, counters of every program */
	REFUSED(0x90cc0102, "HWPM_RELEASE"), /* class refused: profiler, counters of every program */
	REFUSED(0x90cc0301,
		"POWER_REQUEST_FEATURES"), /* class refused: profiler, counters of every program */
	REFUSED(0x90cc0302,
		"POWER_RELEASE_FEATURES"),	     /* class refused: profiler, counters of every program */
	REFUSED(0x90cd0101, "ENABLE_EVENTS"),	     /* class refused: 0x90cd */
	REFUSED(0x90cd0102, "UPDATE_GET"),	     /* class refused: 0x90cd */
	REFUSED(0x90cd0104, "FLUSH"),		     /* class refused: 0x90cd */
	REFUSED(0x90cd0105, "POST_TELEMETRY_EVENT"), /* class refused: 0x90cd */
	CONTROL(0x90e60101, COPY, 16, "MASTER_GET_ERROR_INTR_OFFSET_MASK"),
	CONTROL(0x90e60102, COPY, 8, "MASTER_GET_VIRTUAL_FUNCTION_ERROR_CONT_INTR_MASK"), /* cuda opencl */
	IN(SERIES_595, 0x90e70102, COPY, 20, "BBX_GET_TIME_DATA"),
	CONTROL(0x90e70113, COPY, 16, "BBX_GET_LAST_FLUSH_TIME"), /* nvml graphics */
	CONTROL(0x90e70119, COPY, 8, "BBX_IS_NVM_FLUSH_ENABLED"),
	IN(SERIES_570, 0xa06c0101, OWN, 2, "GPFIFO_SCHEDULE"), /* cuda opencl */
	IN(SERIES_580_ON, 0xa06c0101, OWN, 3, "GPFIFO_SCHEDULE"),
	CONTROL(0xa06c0102, COPY, 4, "BIND"),
	CONTROL(0xa06c0103, OWN, 8, "SET_TIMESLICE"),  /* cuda opencl */
	CONTROL(0xa06c0104, COPY, 8, "GET_TIMESLICE"), /* profiler */
	/* Preempts outside the scheduler. libcuda asks for it in cudaDeviceReset, and where it is refused the
	 * process cannot use the GPU again (CUDA error 801, measured). Freeing the group does what is
	 * needed. */
	CONTROL(0xa06c0105, ANSWERED, 8, "PREEMPT"), /* cuda opencl */
	CONTROL(0xa06c0106, COPY, 4, "GET_INFO"),
	CONTROL(0xa06c0107, OWN, 4, "SET_INTERLEAVE_LEVEL"),
	REFUSED(0xa06c0110, "MAKE_REALTIME"),		       /* changes scheduling */
	IN(SERIES_570, 0xa06f0103, OWN, 2, "GPFIFO_SCHEDULE"), /* compute */
	IN(SERIES_580_ON, 0xa06f0103, OWN, 3, "GPFIFO_SCHEDULE"),
	CONTROL(0xa06f0104, COPY, 4, "BIND"), /* graphics video */
	CONTROL(0xa06f0108, COPY, 1, "SET_ERROR_NOTIFIER"),
	REFUSED(0xa06f0109, "SET_INTERLEAVE_LEVEL"), /* changes scheduling */
	REFUSED(0xa06f0111, "RESTART_RUNLIST"),	     /* changes scheduling */
	CONTROL(0xa06f0112, COPY, 1, "STOP_CHANNEL"),
	CONTROL(0xa0bc0102, COPY, 984, "NVENC_SW_SESSION_UPDATE_INFO_V2"),
	REFUSED(0xb0cc0101, "RESERVE_HWPM_LEGACY"),  /* class refused: profiler, counters of every program */
	REFUSED(0xb0cc0102, "RELEASE_HWPM_LEGACY"),  /* class refused: profiler, counters of every program */
	REFUSED(0xb0cc0103, "RESERVE_PM_AREA_SMPC"), /* class refused: profiler, counters of every program */
	REFUSED(0xb0cc0104, "RELEASE_PM_AREA_SMPC"), /* class refused: profiler, counters of every program */
	REFUSED(0xb0cc0105, "ALLOC_PMA_STREAM"),     /* class refused: profiler, counters of every program */
	REFUSED(0xb0cc0106, "FREE_PMA_STREAM"),	     /* class refused: profiler, counters of every program */
	REFUSED(0xb0cc0107, "BIND_PM_RESOURCES"),    /* class refused: profiler, counters of every program */
	REFUSED(0xb0cc0108, "UNBIND_PM_RESOURCES"),  /* class refused: profiler, counters of every program */
	REFUSED(0xb0cc0109,
		"PMA_STREAM_UPDATE_GET_PUT"), /* class refused: profiler, counters of every program */
	REFUSED(0xb0cc010a, "EXEC_REG_OPS"),  /* class refused: profiler, counters of every program */
	REFUSED(0xb0cc010b,
		"RESERVE_PM_AREA_PC_SAMPLER"), /* class refused: profiler, counters of every program */
	REFUSED(0xb0cc010c,
		"RELEASE_PM_AREA_PC_SAMPLER"),	     /* class refused: profiler, counters of every program */
	REFUSED(0xb0cc010d, "GET_TOTAL_HS_CREDITS"), /* class refused: profiler, counters of every program */
	REFUSED(0xb0cc010e, "SET_HS_CREDITS"),	     /* class refused: profiler, counters of every program */
	REFUSED(0xb0cc0115,
		"GET_CHIPLET_HS_CREDIT_POOL"),	 /* class refused: profiler, counters of every program */
	REFUSED(0xb0cc0119, "RESERVE_CCU_PROF"), /* class refused: profiler, counters of every program */
	REFUSED(0xb0cc0301,
		"POWER_REQUEST_FEATURES"), /* class refused: profiler, counters of every program */
	REFUSED(0xb0cc0302,
		"POWER_RELEASE_FEATURES"), /* class refused: profiler, counters of every program */
	UNSIZED(0xc36f0101, COPY, "GET_CLASS_ENGINEID"),			 /* compute */
	CONTROL(0xc36f0108, OWN, 4, "GPFIFO_GET_WORK_SUBMIT_TOKEN"),		 /* cuda opencl */
	CONTROL(0xc36f010a, OWN, 4, "GPFIFO_SET_WORK_SUBMIT_TOKEN_NOTIF_INDEX"), /* graphics video */
	IN(SERIES_570, 0xc56f010b, COPY, 128, "GET_KMB"),			 /* compute */
	IN(SERIES_580_ON, 0xc56f010b, COPY, 144, "GET_KMB"),
	REFUSED(0xc6370101, "EXEC_PARTITIONS_CREATE"),		 /* class refused: 0xc637 */
	REFUSED(0xc6370102, "EXEC_PARTITIONS_DELETE"),		 /* class refused: 0xc637 */
	REFUSED(0xc6370105, "EXEC_PARTITIONS_EXPORT"),		 /* class refused: 0xc637 */
	CONTROL(0xcb330101, COPY, 6, "SYSTEM_GET_CAPABILITIES"), /* cuda opencl nvml */
	CONTROL(0xcb330104, COPY, 1, "SYSTEM_GET_GPUS_STATE"),	 /* compute */
	CONTROL(0xcb330106, COPY, 24, "GPU_GET_VIDMEM_SIZE"),
	CONTROL(0xcb330109, COPY, 9228, "GET_GPU_CERTIFICATE"),
	CONTROL(0xcb33010a, COPY, 12336, "GET_GPU_ATTESTATION_REPORT"),
	CONTROL(0xcb33010b, COPY, 12, "GPU_GET_NUM_SECURE_CHANNELS"), /* compute */
	CONTROL(0xcb33010c, COPY, 8, "GPU_GET_KEY_ROTATION_STATE"),   /* compute */
	CONTROL(0xcbca0101, COPY, 16, "SUBSCRIBE"),		      /* nvml */
	CONTROL(0xcbca0102, COPY, 0, "UNSUBSCRIBE"),
	CONTROL(0xcbca0103, COPY, 1, "SET_STREAM_STATE"),
	CONTROL(0xcbca0104, COPY, 1, "GET_STREAM_STATE"),
};

const struct rm_control_table rm_controls_objects = { entries, sizeof(entries) / sizeof(entries[0]) };
