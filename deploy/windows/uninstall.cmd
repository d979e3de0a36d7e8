@echo off
rem Stops csi-proxy and removes its service and its file. Volumes stay mounted, but
rem nothing can be mounted or unmounted on this node until a csi-proxy is back.
setlocal
set "TARGET=%ProgramFiles%\Holdfast\csi-proxy"
set "PROGRAM=%TARGET%\csi-proxy.exe"

if not exist "%PROGRAM%" (
  echo uninstall: there is no %PROGRAM% 1>&2
  exit /b 1
)
"%PROGRAM%" stop
"%PROGRAM%" remove
if errorlevel 1 exit /b 1
del "%PROGRAM%"
rmdir "%TARGET%"
