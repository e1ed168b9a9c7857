# SPDX-License-Identifier: Apache-2.0
#
# Finds the XLA inside an installed tensorflow or tensorflow-cpu wheel, without
# importing TensorFlow, and defines the target TensorflowXla::TensorflowXla.
#
# The build uses the wheel of the Python that builds; HLOENV_TENSORFLOW_DIR names
# another `tensorflow` folder.

set(HLOENV_TENSORFLOW_VERSION "2.21.0")

if(NOT HLOENV_TENSORFLOW_DIR)
  execute_process(
    COMMAND
      "${Python_EXECUTABLE}" -c
      "import importlib.util as u; s = u.find_spec('tensorflow'); print(s.submodule_search_locations[0] if s and s.submodule_search_locations else '')"
    OUTPUT_VARIABLE HLOENV_TENSORFLOW_DIR
    OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()

set(_install_hint
    "install it for this Python (${Python_EXECUTABLE}): pip install tensorflow-cpu==${HLOENV_TENSORFLOW_VERSION}"
)
if(NOT HLOENV_TENSORFLOW_DIR
   OR NOT EXISTS "${HLOENV_TENSORFLOW_DIR}/libtensorflow_cc.so.2")
  message(
    FATAL_ERROR
      "hloenv needs the libraries of tensorflow-cpu ${HLOENV_TENSORFLOW_VERSION} "
      "(looked in '${HLOENV_TENSORFLOW_DIR}'); ${_install_hint}")
endif()

# The version stands in the wheel's metadata folder beside the package.
get_filename_component(_site "${HLOENV_TENSORFLOW_DIR}" DIRECTORY)
file(GLOB _infos "${_site}/tensorflow-[0-9]*.dist-info"
     "${_site}/tensorflow_cpu-[0-9]*.dist-info")
set(_found_version "unknown")
foreach(_info IN LISTS _infos)
  if(_info MATCHES "/tensorflow(_cpu)?-([0-9.]+)\\.dist-info$")
    set(_found_version "${CMAKE_MATCH_2}")
  endif()
endforeach()
if(NOT _found_version STREQUAL HLOENV_TENSORFLOW_VERSION)
  message(
    FATAL_ERROR
      "hloenv is built against TensorFlow ${HLOENV_TENSORFLOW_VERSION}, but "
      "${HLOENV_TENSORFLOW_DIR} holds version ${_found_version}; ${_install_hint}")
endif()

add_library(TensorflowXla::TensorflowXla INTERFACE IMPORTED)
set(_include "${HLOENV_TENSORFLOW_DIR}/include")
set_target_properties(
  TensorflowXla::TensorflowXla
  PROPERTIES
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES
    "${_include};${_include}/external/farmhash_archive/src;${_include}/external/highwayhash"
    INTERFACE_INCLUDE_DIRECTORIES
    "${_include};${_include}/external/farmhash_archive/src;${_include}/external/highwayhash"
    INTERFACE_COMPILE_DEFINITIONS
    "_GLIBCXX_USE_CXX11_ABI=1;HLOENV_TENSORFLOW_VERSION=\"${HLOENV_TENSORFLOW_VERSION}\""
    INTERFACE_LINK_DIRECTORIES "${HLOENV_TENSORFLOW_DIR}"
    INTERFACE_LINK_LIBRARIES
    "-l:libtensorflow_cc.so.2;-l:libtensorflow_framework.so.2;dl")
message(STATUS "XLA of TensorFlow ${_found_version}: ${HLOENV_TENSORFLOW_DIR}")
