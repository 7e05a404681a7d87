# Makes the manual page of PROGRAM from TEMPLATE; @OPTIONS@ is what its parser says. cmake -DPROGRAM= -DTEMPLATE=
# -DPAGE= -P escrow.1.cmake
execute_process(COMMAND ${PROGRAM} --manual OUTPUT_VARIABLE OPTIONS COMMAND_ERROR_IS_FATAL ANY)
configure_file(${TEMPLATE} ${PAGE} @ONLY)
